//go:build linux

package network

import (
	"cmp"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/network/lab"
	"github.com/postern-dev/postern/tests/upstream"
)

// streamError begins the event that tells a caller of chat completions that its
// stream broke off.
const streamError = `data: {"error":{"message":`

// A line that is dead for a moment costs no stream.
func TestHiccup(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	release := make(chan struct{})
	r.serve(t, "ticker", upstream.SlowTokens(50*time.Millisecond, release))
	f := r.follow(t, "ticker")
	for range 3 {
		f.wait(t, 20, patience)
		r.WAN.Cut()
		time.Sleep(time.Second) // a connector gives the path up when a ping has no answer for 3 s
		r.WAN.Heal()
	}
	f.wait(t, 3, patience)
	close(release)
	f.whole(t)
	if n := r.online(r.box); n != 1 {
		t.Errorf("the connector came online %d times", n)
	}
}

// A line that is dead for longer ends what was running, in the words of each
// caller's dialect, and when it is back so is the tunnel, by itself.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, outage := range []struct {
		length, limit time.Duration // limit: from the line's return to the first answer
	}{
		// The pauses between attempts grow up to half the outage, and the attempt
		// that the line's return meets may take 10 s.
		{12 * time.Second, 25 * time.Second},
		{30 * time.Second, 45 * time.Second},
	} {
		t.Run(outage.length.String(), func(t *testing.T) {
			if testing.Short() && outage.length > 15*time.Second {
				t.Skip("-short: this takes a minute")
			}
			t.Parallel()
			r := newRig(t, harness.Options{})
			r.serve(t, "ticker", upstream.SlowTokens(50*time.Millisecond, nil))
			r.serve(t, "echo", upstream.Echo)
			f := r.follow(t, "ticker")
			messages := r.Open(t, "/v1/messages", `{"model":"ticker","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"x"}]}`)
			f.wait(t, 3, patience)
			r.WAN.Cut()
			time.Sleep(outage.length)
			r.WAN.Heal()
			took := r.waitAnswer(t, "echo", outage.limit)
			t.Logf("back after %v over %s", took.Round(100*time.Millisecond), cmp.Or(transport(r.box), "QUIC"))
			f.end(t)
			if f.err != nil || !strings.HasPrefix(f.last, streamError) {
				t.Errorf("the stream of chat completions ended with %q, %v", f.last, f.err)
			}
			rest, err := messages.Rest()
			if err != nil || !strings.Contains(rest[strings.LastIndex(rest, "event:"):], `event: error`) {
				t.Errorf("the stream of messages ended with %q, %v", rest[max(0, len(rest)-300):], err)
			}
			r.up.WaitRunning(t, 0) // the model does not go on for nobody
		})
	}
}

// A network card that is away for a moment, as when a laptop changes networks,
// does not leave callers waiting for the end of the path's patience.
func TestCardBlinks(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "ticker", upstream.SlowTokens(50*time.Millisecond, nil))
	r.serve(t, "echo", upstream.Echo)
	f := r.follow(t, "ticker")
	f.wait(t, 3, patience)
	r.Home.IP(t, "link set lan down")
	time.Sleep(3 * time.Second)
	r.Home.IP(t, "link set lan up", "route add default via "+lab.RouterLAN)
	start := time.Now()
	tokens := f.tokens.Load()
	for f.tokens.Load() < tokens+5 && !f.over() {
		if time.Since(start) > 2*patience { // pauses between attempts have grown meanwhile
			t.Fatal("the stream neither goes on nor ends")
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("the stream goes on, %t, after %v", !f.over(), time.Since(start).Round(100*time.Millisecond))
	if f.over() && (f.err != nil || !strings.HasPrefix(f.last, streamError)) {
		t.Errorf("the stream ended with %q, %v", f.last, f.err)
	}
	t.Logf("back after %v", r.waitAnswer(t, "echo", patience).Round(100*time.Millisecond))
}

// While home has no network at all a request is refused in time, in the words
// of its dialect; and a network card that is switched off and on again does not
// end the connector.
func TestCardOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "ticker", upstream.SlowTokens(50*time.Millisecond, nil))
	r.serve(t, "echo", upstream.Echo)
	f := r.follow(t, "ticker")
	f.wait(t, 3, patience)
	r.Home.IP(t, "link set lan down") // takes the routes away: the next send fails
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
	r.Home.IP(t, "link set lan up", "route add default via "+lab.RouterLAN)
	t.Logf("back after %v", r.waitAnswer(t, "echo", 2*patience).Round(100*time.Millisecond))
	if !r.box.Process.Running() {
		t.Error("the connector has ended")
	}
}
