package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// notPaired is the exit code of `connector pair` for a code that does not work.
const notPaired = 3

// limit bounds steps that take a moment.
const limit = harness.Patience

type pairing struct {
	ID        string    `json:"id"`
	Code      string    `json:"code"`
	State     string    `json:"state"`
	ExpiresAt time.Time `json:"expires_at"`
	Connector string    `json:"connector"`
	Connected bool      `json:"connected"`
	Device    *struct {
		Hostname    string   `json:"hostname"`
		OS          string   `json:"os"`
		Version     string   `json:"version"`
		Address     string   `json:"address"`
		Fingerprint string   `json:"fingerprint"`
		Upstreams   []string `json:"upstreams"`
	} `json:"device"`
}

// startPairing creates a pairing code with the command.
func startPairing(t *testing.T, g *harness.Gateway) pairing {
	t.Helper()
	var p pairing
	g.Command(t, &p, "pairing", "start")
	if len(p.Code) != len("PAIR-XXXX-XXXX") || p.State != "waiting" {
		t.Fatalf("pairing start: %+v", p)
	}
	if left := time.Until(p.ExpiresAt); left < 14*time.Minute || left > 15*time.Minute {
		t.Errorf("the code lasts %v, not 15 minutes", left)
	}
	return p
}

// waitPairing waits until the list of pairings has one in a state.
func waitPairing(t *testing.T, g *harness.Gateway, id, state string) pairing {
	t.Helper()
	var found pairing
	harness.Poll(t, limit, "the pairing being "+state, func(context.Context) error {
		var list []pairing
		g.Command(t, &list, "pairing", "list")
		for _, p := range list {
			if p.ID == id && p.State == state {
				found = p
				return nil
			}
		}
		return fmt.Errorf("the list is %+v", list)
	})
	return found
}

// waitOnline waits until the connector of an id is online.
func waitOnline(t *testing.T, g *harness.Gateway, id string) {
	t.Helper()
	harness.Poll(t, limit, "the paired connector being online", func(context.Context) error {
		var list []struct{ ID, State string }
		g.Command(t, &list, "connector", "list")
		for _, c := range list {
			if c.ID == id && c.State == "online" {
				return nil
			}
		}
		return fmt.Errorf("the list is %+v", list)
	})
}

// hideToken forbids the token of a paired connector in all logs, and returns
// it.
func hideToken(t *testing.T, g *harness.Gateway, name string) string {
	t.Helper()
	info, err := os.Stat(g.PairedConfig(name))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the configuration has mode %v", info.Mode())
	}
	data := read(t, g.PairedConfig(name))
	var config struct {
		Token string `json:"tunnel_token"`
	}
	if err := json.Unmarshal(data, &config); err != nil || !strings.HasPrefix(config.Token, "ptt_") {
		t.Fatalf("the configuration is %s (%v)", data, err)
	}
	g.Hide(config.Token)
	return config.Token
}

func testPairingByTheCommandLine(t *testing.T, g *harness.Gateway) {
	up := upstream.Start(t)
	up.Handle("up-model", upstream.JSON(upstream.Completion("up-model", "hello")))
	started := startPairing(t, g)
	device := g.Pair(t, "device", started.Code, up.URL)

	waiting := waitPairing(t, g, started.ID, "pending")
	if d := waiting.Device; d == nil || d.Hostname == "" || d.OS == "" || d.Version == "" || d.Address == "" ||
		!waiting.Connected {
		t.Fatalf("the waiting device is %+v", waiting)
	}
	if log := device.Log(); !strings.Contains(log, waiting.Device.Fingerprint) {
		t.Errorf("the terminal does not show the fingerprint %q:\n%s", waiting.Device.Fingerprint, log)
	}
	if _, err := os.Stat(g.PairedConfig("device")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a configuration before the approval: %v", err)
	}

	var approved pairing
	g.Command(t, &approved, "pairing", "approve", strings.ToLower(started.Code), "--yes")
	if approved.State != "approved" || approved.Connector == "" {
		t.Fatalf("pairing approve: %+v", approved)
	}
	waitOnline(t, g, approved.Connector)
	token := hideToken(t, g, "device")
	if strings.Contains(device.Log(), token) {
		t.Error("the terminal shows the token")
	}

	g.Deploy(t, "model", approved.Connector, "", "up-model")
	_, key := g.Key(t, "all", "*")
	served(t, g.Client(t, key).Post(t, harness.Chat("model", "")), "a request through the paired connector")

	// A code works once, also for another device.
	second := g.Pair(t, "second", started.Code, up.URL)
	if code := second.WaitExit(t, limit); code != notPaired || !strings.Contains(second.Log(), "used") {
		t.Errorf("the same code again: exit code %d\n%s", code, second.Log())
	}
	if _, stderr, code := g.Run(t, "pairing", "approve", started.Code, "--yes"); code != 1 ||
		!strings.Contains(stderr, "approved") {
		t.Errorf("approving again: exit code %d, %s", code, stderr)
	}
}

// A machine is set up and paired again while its old connector still runs: the new one gets the id, and with
// it the models.
func testPairingAgain(t *testing.T, g *harness.Gateway) {
	_, key := g.Key(t, "all", "*")
	pair := func(name string, args ...string) (pairing, *harness.Process) {
		t.Helper()
		up := upstream.Start(t)
		up.Handle("up-model", upstream.JSON(upstream.Completion("up-model", name)))
		started := startPairing(t, g)
		device := g.Pair(t, name, started.Code, up.URL, "--name", "vm")
		waitPairing(t, g, started.ID, "pending")
		var approved pairing
		g.Command(t, &approved, append([]string{"pairing", "approve", started.ID, "--yes"}, args...)...)
		return approved, device
	}
	expect := func(name string) {
		t.Helper()
		harness.Poll(t, limit, "an answer of the connector "+name, func(context.Context) error {
			if a := g.Client(t, key).Post(t, harness.Chat("model", "")); a.Status != http.StatusOK ||
				!strings.Contains(a.Body, name) {
				return fmt.Errorf("status %d, %s", a.Status, a.Body)
			}
			return nil
		})
	}
	first, old := pair("the old one")
	waitOnline(t, g, first.Connector)
	hideToken(t, g, "the old one")
	g.Deploy(t, "model", first.Connector, "", "up-model")
	expect("the old one")
	second, _ := pair("the new one", "--replace", "vm")
	if second.Connector != first.Connector {
		t.Errorf("the connector was %s, and is %s", first.Connector, second.Connector)
	}
	expect("the new one")
	hideToken(t, g, "the new one")
	old.WaitLog(t, "removed", limit)
	expect("the new one")
	var list []struct{ ID, Name string }
	g.Command(t, &list, "connector", "list")
	if len(list) != 1 || list[0].ID != first.Connector || list[0].Name != "vm" {
		t.Errorf("the connectors are %+v", list)
	}
	giveAway(t, g, first.Connector)
}

// giveAway gives the id of the only connector, vm, to a device that never connects. The connector that has it
// now must still leave at once.
func giveAway(t *testing.T, g *harness.Gateway, connector string) {
	t.Helper()
	started := startPairing(t, g)
	ghost := g.Pair(t, "a ghost", started.Code, "http://127.0.0.1:9", "--name", "vm")
	waitPairing(t, g, started.ID, "pending")
	ghost.Kill()
	g.Command(t, nil, "pairing", "approve", started.ID, "--replace", "vm", "--yes")
	harness.Poll(t, limit, "the connector being offline", func(context.Context) error {
		var list []struct{ ID, State string }
		g.Command(t, &list, "connector", "list")
		if len(list) != 1 || list[0].ID != connector || list[0].State != "offline" {
			return fmt.Errorf("the connectors are %+v", list)
		}
		return nil
	})
}

func TestDeniedAndUnknownCodes(t *testing.T) {
	t.Parallel()
	g := harness.Start(t, harness.Options{Console: true})
	up := upstream.Start(t)

	started := startPairing(t, g)
	device := g.Pair(t, "denied", started.Code, up.URL)
	waitPairing(t, g, started.ID, "pending")
	var denied pairing
	g.Command(t, &denied, "pairing", "deny", started.Code)
	if denied.State != "denied" {
		t.Errorf("pairing deny: %+v", denied)
	}
	if code := device.WaitExit(t, limit); code != notPaired || !strings.Contains(device.Log(), "denied") {
		t.Errorf("a denied device: exit code %d\n%s", code, device.Log())
	}

	canceled := startPairing(t, g)
	g.Command(t, nil, "pairing", "deny", canceled.Code)
	late := g.Pair(t, "canceled", canceled.Code, up.URL)
	if code := late.WaitExit(t, limit); code != notPaired {
		t.Errorf("a canceled code: exit code %d\n%s", code, late.Log())
	}

	open := startPairing(t, g)
	var guesses []*harness.Process
	for i := range 5 {
		guesses = append(guesses, g.Pair(t, fmt.Sprint("guess", i), fmt.Sprint("PAIR-0000-000", i), up.URL))
	}
	for i, guess := range guesses {
		if exit := guess.WaitExit(t, limit); exit != notPaired ||
			!strings.Contains(guess.Log(), "unknown") && !strings.Contains(guess.Log(), "not known") {
			t.Errorf("guess %d: exit code %d\n%s", i, exit, guess.Log())
		}
	}
	// After five wrong codes, even the right one must wait. Otherwise the client could distinguish it.
	blocked := g.Pair(t, "blocked", open.Code, up.URL)
	blocked.WaitLog(t, "too many", limit)
	if p := waitPairing(t, g, open.ID, "waiting"); p.Device != nil {
		t.Errorf("the code was taken: %+v", p)
	}
}

func TestPairingSurvivesTheGateway(t *testing.T) {
	t.Parallel()
	g := harness.Start(t, harness.Options{Console: true})
	up := upstream.Start(t)
	started := startPairing(t, g)
	device := g.Pair(t, "device", started.Code, up.URL)
	fingerprint := waitPairing(t, g, started.ID, "pending").Device.Fingerprint

	g.Process.Kill()
	g.Restart(t)
	harness.Poll(t, limit, "the device waiting again", func(context.Context) error {
		if p := waitPairing(t, g, started.ID, "pending"); !p.Connected || p.Device.Fingerprint != fingerprint {
			return fmt.Errorf("the pairing is %+v", p)
		}
		return nil
	})

	// The gateway dies right after the approval. The approval is acknowledged, so the device gets its token from
	// the next process.
	var approved pairing
	g.Command(t, &approved, "pairing", "approve", started.ID, "--yes")
	g.Process.Kill()
	g.Restart(t)
	waitOnline(t, g, approved.Connector)
	hideToken(t, g, "device")
	if !device.Running() {
		t.Errorf("the connector has ended:\n%s", device.Log())
	}
}

func testOneApprovalWins(t *testing.T, g *harness.Gateway) {
	up := upstream.Start(t)
	started := startPairing(t, g)
	g.Pair(t, "device", started.Code, up.URL)
	waitPairing(t, g, started.ID, "pending")

	var wg sync.WaitGroup
	statuses := make([]int, 16)
	for i := range statuses {
		wg.Go(func() {
			verb := "approve"
			if i%2 == 1 {
				verb = "deny"
			}
			err := g.Gateway.Manage(t.Context(), http.MethodPost, "/pairings/"+verb,
				map[string]string{"pairing": started.ID}, nil)
			if refused, ok := errors.AsType[*harness.StatusError](err); ok {
				statuses[i] = refused.Status
			} else if err == nil {
				statuses[i] = http.StatusOK
			}
		})
	}
	wg.Wait()
	won := 0
	for _, status := range statuses {
		switch status {
		case http.StatusOK:
			won++
		case http.StatusConflict:
		default:
			t.Errorf("status %d", status)
		}
	}
	if won != 1 {
		t.Errorf("%d decisions won: %v", won, statuses)
	}
}
