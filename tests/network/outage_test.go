//go:build linux

package network

import (
	"cmp"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig/lab"
	"github.com/postern-dev/postern/tests/upstream"
)

// streamError is the beginning of the event for a broken stream of chat completions.
const streamError = `data: {"error":{"message":`

// A dead line or a disabled network card ends no stream if QUIC's timeout has not passed: the stream continues
// afterwards. It may or may not have filled the congestion window.
func TestBlackout(t *testing.T) {
	t.Parallel()
	cut := func(t *testing.T, r *rig, length time.Duration) {
		r.WAN.Cut()
		r.waitSilence(t, length)
		r.WAN.Heal()
	}
	for _, blackout := range []struct {
		name   string
		pace   time.Duration // interval of tokens
		length time.Duration
		dark   func(t *testing.T, r *rig, length time.Duration)
		delay  time.Duration // of the line
	}{
		{"short", 20 * time.Millisecond, 3 * time.Second, cut, 0},
		{"slow stream", 200 * time.Millisecond, 10 * time.Second, cut, 0},
		{"fast stream", time.Millisecond, 10 * time.Second, cut, 0},
		{"long line", time.Millisecond, 10 * time.Second, cut, 35 * time.Millisecond},
		{"card out", 20 * time.Millisecond, 10 * time.Second, func(t *testing.T, r *rig, length time.Duration) {
			must(t, r.Home.IP("link set lan down"))
			r.waitSilence(t, length)
			must(t, r.Home.IP("link set lan up", "route add default via "+lab.RouterLAN))
		}, 0},
		// Only the connector's packets show its new address, and with a full window it sends probes with pauses
		// that double: one comes within QUIC's limit.
		{"another network", 20 * time.Millisecond, 5 * time.Second, func(t *testing.T, r *rig, length time.Duration) {
			r.WAN.Cut()
			r.waitSilence(t, length)
			must(t, r.Move(1))
			r.WAN.Heal()
		}, 0},
	} {
		t.Run(blackout.name, func(t *testing.T) {
			if blackout.name != "card out" {
				long(t)
			}
			t.Parallel()
			r := newRig(t, harness.Options{})
			r.WAN.Set(lab.Conditions{Delay: blackout.delay})
			release := make(chan struct{})
			r.serve(t, "ticker", upstream.SlowTokens(blackout.pace, release))
			f := r.follow(t, "ticker")
			f.wait(t, int(time.Second/blackout.pace), patience) // so the gateway has answered a ping
			blackout.dark(t, r, blackout.length)
			start := time.Now()
			f.wait(t, 5, patience)
			t.Logf("the stream continued %v after the path's return", time.Since(start).Round(10*time.Millisecond))
			close(release)
			f.whole(t)
			if n := r.online(r.box); n != 1 {
				t.Errorf("the connector came online %d times", n)
			}
		})
	}
}

// waitSilence waits for a time, and until the gateway has noticed a silence of more than four seconds.
func (r *rig) waitSilence(t *testing.T, length time.Duration) {
	t.Helper()
	time.Sleep(length)
	if length > 4*time.Second {
		r.gateway.Process.WaitLog(t, "connector is silent", patience)
	}
}

// If a line is dead for longer than QUIC's timeout, all requests end with an error in their dialect. When the
// line is back, the connector reconnects.
func TestOutage(t *testing.T) {
	long(t)
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "ticker", upstream.SlowTokens(50*time.Millisecond, nil))
	r.serve(t, "echo", upstream.Echo)
	f := r.follow(t, "ticker")
	messages := r.Open(t, "/v1/messages",
		`{"model":"ticker","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"x"}]}`)
	f.wait(t, 3, patience)
	r.WAN.Cut()
	time.Sleep(20 * time.Second) // QUIC's limit is 15 s
	r.WAN.Heal()
	took := r.waitAnswer(t, "echo", patience)
	t.Logf("back after %v over %s", took.Round(100*time.Millisecond), cmp.Or(transport(r.box), "QUIC"))
	if took > 3*time.Second {
		t.Errorf("back after %v", took)
	}
	f.end(t)
	if f.err != nil || !strings.HasPrefix(f.last, streamError) {
		t.Errorf("the stream of chat completions ended with %q, %v", f.last, f.err)
	}
	rest, err := messages.Rest()
	if err != nil || !strings.Contains(rest[strings.LastIndex(rest, "event:"):], `event: error`) {
		t.Errorf("the stream of messages ended with %q, %v", rest[max(0, len(rest)-300):], err)
	}
	r.up.WaitRunning(t, 0) // the model stops without a client
}

// Without a network at home, requests soon fail with an error in their dialect. A network card that is
// switched off and on again does not end the connector.
func TestCardOff(t *testing.T) {
	long(t)
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "ticker", upstream.SlowTokens(50*time.Millisecond, nil))
	r.serve(t, "echo", upstream.Echo)
	f := r.follow(t, "ticker")
	f.wait(t, 3, patience)
	must(t, r.Home.IP("link set lan down")) // removes the routes, so the next send fails
	f.end(t)
	if f.err != nil || !strings.HasPrefix(f.last, streamError) {
		t.Errorf("the stream ended with %q, %v", f.last, f.err)
	}
	r.box.WaitState(t, "offline", 2*patience)
	start := time.Now()
	r.Post(t, harness.Chat("echo", "")).ExpectError(t, http.StatusServiceUnavailable, "server_error", "deployment_offline")
	if took := time.Since(start); took > patience {
		t.Errorf("the refusal took %v", took)
	}
	must(t, r.Home.IP("link set lan up", "route add default via "+lab.RouterLAN))
	t.Logf("back after %v", r.waitAnswer(t, "echo", 2*patience).Round(100*time.Millisecond))
	if !r.box.Process.Running() {
		t.Error("the connector has ended")
	}
}
