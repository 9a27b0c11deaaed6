package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// rotationWait is how long the command waits for the connector.
const rotationWait = 5 * time.Second

// rotationState is the gateway's report about a connector's token.
type rotationState struct {
	ID        string
	State     string
	RotatedAt *time.Time `json:"rotated_at"`
	Rotation  *struct {
		Since   time.Time
		Problem string
		ByHand  bool `json:"by_hand"`
	}
}

func (r *rig) rotation(t *testing.T) rotationState {
	t.Helper()
	var list []rotationState
	r.Command(t, &list, "connector", "list")
	for _, item := range list {
		if item.ID == r.con.ID {
			return item
		}
	}
	t.Fatal("the connector is not listed")
	return rotationState{}
}

// secret returns the secret in the connector's configuration.
func (r *rig) secret(t *testing.T) string {
	t.Helper()
	return r.token(t).Secret
}

// token returns the token in the connector's configuration. From now on, no log may contain it.
func (r *rig) token(t *testing.T) link.Token {
	t.Helper()
	data, err := os.ReadFile(r.con.Config)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Token string `json:"tunnel_token"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatalf("the configuration is damaged: %v\n%d bytes", err, len(data))
	}
	token, err := link.ParseToken(config.Token)
	if err != nil {
		t.Fatal(err)
	}
	r.Hide(config.Token, token.Secret)
	return token
}

// rotated waits until the rotation is done, and returns the new secret.
func (r *rig) rotated(t *testing.T, old string) string {
	t.Helper()
	harness.Poll(t, limit, "the end of the rotation", func(context.Context) error {
		if now := r.rotation(t); now.Rotation != nil || now.RotatedAt == nil {
			return fmt.Errorf("it is %+v", now)
		}
		return nil
	})
	secret := r.secret(t)
	if secret == old {
		t.Error("the configuration has the old secret")
	}
	return secret
}

// A rotation happens during a stream on the tunnel. The configuration keeps everything but the secret, and the
// old token becomes invalid.
func testRotation(t *testing.T, g *harness.Gateway) {
	r := rigOf(t, g)
	release := make(chan struct{})
	r.serve(t, "tokens", upstream.SlowTokens(5*time.Millisecond, release))
	r.serve(t, "m", upstream.Echo)
	config := strings.Replace(readFile(t, r.con.Config), `"tunnel_token":`, "\n  \"tunnel_token\" :\t", 1)
	if err := os.WriteFile(r.con.Config, []byte(config), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(r.con.Config, 0o640); err != nil {
		t.Fatal(err)
	}
	since, old := tunnelSince(t, r), r.secret(t)
	s := r.Stream(t, harness.Chat("tokens", `,"stream":true`))
	s.Expect(t, upstream.Role("tokens"))

	if out, _, code := r.Run(t, "connector", "rotate", r.con.Name); code != 2 || out != "" {
		t.Errorf("without a terminal and --yes: exit code %d, %s", code, out)
	}
	begun := time.Now()
	out, errs, code := r.Run(t, "connector", "rotate", r.con.Name, "--yes")
	if late := time.Since(begun) > rotationWait; code != 0 || !strings.Contains(out, "has a new tunnel token") && !late {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	first := r.rotated(t, old)
	var answer struct{ State string }
	begun = time.Now()
	r.Command(t, &answer, "connector", "rotate", r.con.ID, "--yes")
	late := time.Since(begun) > rotationWait
	second := r.rotated(t, first)
	if answer.State != "rotated" && !late {
		t.Errorf("the second time: %+v", answer)
	}
	token, err := link.ParseToken(r.con.Token)
	if err != nil {
		t.Fatal(err)
	}
	token.Secret, token.Number = second, 2
	if got, want := readFile(t, r.con.Config), strings.Replace(config, r.con.Token, token.Encode(), 1); got != want {
		t.Errorf("the configuration has changed in more than its token: %d bytes, want %d", len(got), len(want))
	}
	if info, err := os.Stat(r.con.Config); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	close(release)
	rest, err := s.Rest()
	if err != nil || !strings.HasSuffix(rest, upstream.Finish("tokens", "stop")+upstream.Done) {
		t.Errorf("the stream ended with %q, %v", clip(rest), err)
	}
	if got := tunnelSince(t, r); got != since {
		t.Errorf("the tunnel was made anew: since %s, before %s", got, since)
	}

	// The same connector, where its configuration is from a backup.
	stale := filepath.Join(r.Dir, "stale.json")
	if err := os.WriteFile(stale, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	former := *r.con
	former.Config, former.Name = stale, "stale"
	former.Launch(t)
	former.Process.WaitLog(t, "bad_credentials", limit)
	former.Process.Kill()
	r.con.Process.Signal(t, syscall.SIGTERM)
	r.con.Process.WaitExit(t, limit)
	r.con.WaitState(t, "offline", limit)
	r.con.Start(t)
	if a := r.Post(t, harness.Chat("m", "")); a.Status != 200 {
		t.Errorf("after a start with the new token: status %d, %s", a.Status, a.Body)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A connector that is away gets its token when it comes back, also from a gateway
// that was restarted meanwhile.
func TestRotationWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	old := r.secret(t)
	r.con.Process.Signal(t, syscall.SIGTERM)
	r.con.Process.WaitExit(t, limit)
	r.con.WaitState(t, "offline", limit)
	if out, errs, code := r.Run(t, "connector", "rotate", r.con.Name, "--yes"); code != 0 ||
		!strings.Contains(out, "has not taken its new tunnel token yet") {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	if now := r.rotation(t); now.Rotation == nil || now.Rotation.Since.IsZero() {
		t.Errorf("the list says %+v", now)
	}
	r.Gateway.Process.Kill()
	r.Restart(t)
	r.con.Start(t)
	r.rotated(t, old)
}

// A connector that cannot write its configuration says so, and takes the token
// that a person brings.
func testRotationByHand(t *testing.T, g *harness.Gateway) {
	r := rigOf(t, g)
	r.serve(t, "m", upstream.Echo)
	old := r.secret(t)
	if err := os.Chmod(r.con.Config, 0o400); err != nil {
		t.Fatal(err)
	}
	harness.Poll(t, limit, "the command telling the problem", nilContext(func() error { // it waits for some seconds only
		_, errs, code := r.Run(t, "connector", "rotate", r.con.Name, "--yes")
		if code != 1 || !strings.Contains(errs, r.con.Config+" is marked as read-only") || !strings.Contains(errs, "--show") {
			return fmt.Errorf("exit code %d\n%s", code, errs)
		}
		return nil
	}))
	if out, _, _ := r.Run(t, "connector", "list"); !strings.Contains(out, "rotating since") ||
		!strings.Contains(out, "is marked as read-only") {
		t.Errorf("the list says %s", out)
	}
	if a := r.Post(t, harness.Chat("m", "")); a.Status != 200 || r.secret(t) != old {
		t.Errorf("meanwhile: status %d, %s", a.Status, a.Body)
	}
	var shown struct {
		State string
		Token string `json:"tunnel_token"`
	}
	r.Command(t, &shown, "connector", "rotate", r.con.Name, "--yes", "--show")
	config := strings.Replace(readFile(t, r.con.Config), r.con.Token, shown.Token, 1)
	if err := os.Chmod(r.con.Config, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.con.Config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r.con.Process.Signal(t, syscall.SIGHUP)
	r.rotated(t, old)
	if a := r.Post(t, harness.Chat("m", "")); a.Status != 200 {
		t.Errorf("with the new token: status %d, %s", a.Status, a.Body)
	}
}

// Rotations in which one of the two ends is killed at some moment: the connector
// is always let in again, and what was begun ends.
func TestRotationKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Echo)
	secret := r.secret(t)
	rounds := 8
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		asked := make(chan error, 1)
		go func() {
			err := r.Admin.Manage(t.Context(), http.MethodPost, "/connectors/"+r.con.ID+"/rotate", struct{}{}, nil)
			if _, ok := errors.AsType[*harness.StatusError](err); ok {
				err = nil
			}
			asked <- err // its answer may get lost with the gateway
		}()
		time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
		var err error
		if round%2 == 0 {
			r.con.Process.Kill()
			err = <-asked
			r.con.Launch(t)
		} else {
			r.Gateway.Process.Kill()
			err = <-asked
			r.Restart(t)
		}
		r.con.WaitState(t, "online", limit)
		if now := r.rotation(t); now.Rotation == nil && r.secret(t) == secret {
			if err == nil {
				t.Fatalf("round %d: a rotation that was promised is lost", round)
			}
			t.Logf("round %d: it was killed before it had begun", round)
			r.Command(t, nil, "connector", "rotate", r.con.ID, "--yes")
		}
		secret = r.rotated(t, secret)
		if a := r.Post(t, harness.Chat("m", "")); a.Status != 200 {
			t.Errorf("round %d: status %d, %s", round, a.Status, a.Body)
		}
	}
}
