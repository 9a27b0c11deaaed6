package tests

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// identity is what `caddy gateway identity` prints.
type identity struct {
	Pin        string
	NextPin    string `json:"next_pin"`
	Connectors int
	Missing    []struct{ Name, Reason string }
}

// pins returns the pins in the connector's configuration.
func (r *rig) pins(t *testing.T) []string {
	t.Helper()
	return r.token(t).Pins()
}

// onlineSince returns the time since which the first connector is online.
func (r *rig) onlineSince(t *testing.T) (since string) {
	t.Helper()
	var list []struct{ Name, State, Since string }
	r.Command(t, &list, "connector", "list")
	for _, c := range list {
		if c.Name == "box" && c.State == "online" {
			since = c.Since
		}
	}
	if since == "" {
		t.Fatalf("connectors: %+v", list)
	}
	return since
}

// waitPins waits until the connector's configuration has these pins.
func (r *rig) waitPins(t *testing.T, want ...string) {
	t.Helper()
	harness.Poll(t, limit, "the pins in the configuration", nilContext(func() error {
		if got := r.pins(t); !slices.Equal(got, want) {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	}))
}

// A whole rotation of the gateway's identity: the tunnel and a stream stay, a second
// connector is offline and a third cannot write its file. Both ends are killed while it is
// pending.
func TestIdentityRotation(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	release := make(chan struct{})
	r.serve(t, "m", upstream.Echo)
	offline := r.Connector(t, "offline", r.up.URL)
	offline.Process.Signal(t, syscall.SIGTERM)
	offline.Process.WaitExit(t, limit)
	readOnly := r.Connector(t, "read-only", r.up.URL)
	if err := os.Chmod(readOnly.Config, 0o400); err != nil {
		t.Fatal(err)
	}

	var before, now identity
	r.Command(t, &before, "identity", "status")
	r.Command(t, nil, "identity", "rotate", "--grace", "720h")
	harness.Poll(t, limit, "the connectors without the pin", nilContext(func() error {
		r.Command(t, &now, "identity", "status")
		if len(now.Missing) != 2 || now.Missing[0].Name == "box" || now.Missing[1].Name == "box" {
			return fmt.Errorf("%+v", now)
		}
		for _, m := range now.Missing {
			if m.Name == "offline" && m.Reason != "it is offline" ||
				m.Name == "read-only" && m.Reason != readOnly.Config+" is marked as read-only" {
				return fmt.Errorf("%+v", now)
			}
		}
		return nil
	}))
	if now.Pin != before.Pin || now.NextPin == "" || before.NextPin != "" || now.Connectors != 3 {
		t.Fatalf("before %+v, now %+v", before, now)
	}
	r.waitPins(t, now.Pin, now.NextPin)
	if _, errs, code := r.Run(t, "identity", "rotate"); code != 1 {
		t.Errorf("a second rotation: exit code %d, %s", code, errs)
	}

	r.con.Process.Signal(t, syscall.SIGKILL)
	r.con.Process.WaitExit(t, limit)
	r.Process.Signal(t, syscall.SIGKILL)
	r.Process.WaitExit(t, limit)
	r.Restart(t)
	r.con.Start(t)
	r.con.WaitState(t, "online", limit)
	offline.Start(t)
	offline.WaitState(t, "online", limit)
	harness.Poll(t, limit, "the connector that was offline storing the pin", nilContext(func() error {
		var status identity
		r.Command(t, &status, "identity", "status")
		if len(status.Missing) != 1 || status.NextPin != now.NextPin {
			return fmt.Errorf("%+v", status)
		}
		return nil
	}))

	r.serve(t, "tokens", upstream.SlowTokens(1e6, release))
	stream := r.Stream(t, harness.Chat("tokens", `,"stream":true`))
	since := r.onlineSince(t)
	var last identity
	r.Command(t, &last, "identity", "rotate", "--now", "--yes")
	if len(last.Missing) != 1 || last.Missing[0].Name != "read-only" {
		t.Errorf("at the switch: %+v", last)
	}
	var after identity
	r.Command(t, &after, "identity", "status")
	if after.Pin != now.NextPin || after.NextPin != "" {
		t.Errorf("after the switch: %+v", after)
	}
	r.waitPins(t, now.NextPin) // the former one is dropped
	if got := r.onlineSince(t); got != since {
		t.Errorf("the tunnel was opened again: since %s, before %s", got, since)
	}
	close(release)
	if rest, err := stream.Rest(); err != nil || rest == "" {
		t.Errorf("the stream: %v", err)
	}
	r.checkAfterSwitch(t, offline, readOnly)
}

// checkAfterSwitch restarts the gateway and connectors with a new identity.
func (r *rig) checkAfterSwitch(t *testing.T, stored, readOnly *harness.Connector) {
	t.Helper()
	r.Process.Signal(t, syscall.SIGKILL)
	r.Process.WaitExit(t, limit)
	r.con.Process.Signal(t, syscall.SIGKILL)
	r.con.Process.WaitExit(t, limit)
	r.Restart(t)
	r.con.Start(t)
	r.con.WaitState(t, "online", limit)
	stored.WaitState(t, "online", limit)
	if a := r.Post(t, harness.Chat("m", "")); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	var list []struct{ Name, State string }
	r.Command(t, &list, "connector", "list")
	for _, c := range list {
		if c.Name == "read-only" && c.State == "online" {
			t.Error("a connector with the former pin is online")
		}
	}
	if err := os.Chmod(readOnly.Config, 0o600); err != nil {
		t.Fatal(errors.New("the configuration is gone"))
	}
}

// A canceled rotation does not change the identity, and connectors forget the next pin.
func TestIdentityCancel(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	var pending, after identity
	r.Command(t, &pending, "identity", "rotate")
	r.waitPins(t, pending.Pin, pending.NextPin)
	r.Command(t, &after, "identity", "cancel")
	if after.Pin != pending.Pin || after.NextPin != "" {
		t.Errorf("%+v", after)
	}
	r.waitPins(t, pending.Pin)
	if _, errs, code := r.Run(t, "identity", "cancel"); code != 1 {
		t.Errorf("a second time: exit code %d, %s", code, errs)
	}
}
