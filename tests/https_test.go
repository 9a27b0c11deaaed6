package tests

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// With HTTPS, clients use HTTP/2: all streams share one connection, and a client that leaves resets its
// stream.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{HTTPS: true})
	r.serve(t, "m", upstream.Echo)
	r.serve(t, "story", upstream.Events(storyOf(up("story"))...))
	r.serve(t, "tokens", upstream.SlowTokens(5*time.Millisecond, nil))
	resp, err := r.HTTP.Do(r.Request(t.Context(), t, http.MethodPost, "/v1/chat/completions", harness.Chat("m", "")))
	must(t, err)
	resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.StatusCode != 200 {
		t.Fatalf("%s, status %d", resp.Proto, resp.StatusCode)
	}
	if a := r.Post(t, harness.Chat("story", `,"stream":true`)); a.Body != lines(storyOf("story")...) || a.Err != nil {
		t.Errorf("status %d, %v, %s", a.Status, a.Err, a.Body)
	}
	served(t, r.Post(t, chatOf("m", 32*mib)), "32 MiB")
	stays := r.Stream(t, harness.Chat("tokens", `,"stream":true`))
	stays.Expect(t, upstream.Role("tokens"))
	r.up.WaitRunning(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := r.Send(r.Request(ctx, t, http.MethodPost, "/v1/chat/completions", harness.Chat("tokens", `,"stream":true`)))
		ended <- err
	}()
	r.up.WaitRunning(t, 2)
	cancel()
	<-ended
	r.up.WaitRunning(t, 1)
	if event, err := stays.Next(); err != nil || !strings.Contains(event, "token") {
		t.Errorf("the stream beside it: %q, %v", event, err)
	}
}

// A stream of an HTTP/2 connection that takes no byte for a minute is cut; the
// other streams of the connection go on.
func TestSlowReaderOverHTTP2(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this takes 80 s")
	}
	t.Parallel()
	r := newRig(t, harness.Options{HTTPS: true})
	r.serve(t, "endless", endless)
	r.serve(t, "quick", upstream.Events(storyOf(up("quick"))...))
	start := time.Now()
	stalled := r.Stream(t, harness.Chat("endless", `,"stream":true`))
	for time.Since(start) < time.Minute+limit && len(r.up.Gone(up("endless"))) == 0 {
		if a := r.Post(t, harness.Chat("quick", `,"stream":true`)); a.Body != lines(storyOf("quick")...) {
			t.Fatalf("a stream beside the stalled one: status %d, %v, %q", a.Status, a.Err, a.Body)
		}
		time.Sleep(time.Second)
	}
	gone := r.up.Gone(up("endless"))
	if len(gone) != 1 {
		t.Fatal("the stalled stream was not cut")
	}
	if d := gone[0].Sub(start); d < 55*time.Second {
		t.Errorf("the stalled stream was cut after %v, want about 60 s", d)
	}
	if rest, err := stalled.Rest(); err == nil || err == io.EOF || strings.Contains(rest, "[DONE]") {
		t.Errorf("the stalled stream ended like a finished one: %v", err)
	}
}
