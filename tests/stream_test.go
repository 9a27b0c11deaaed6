package tests

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// A model that processes a long prompt is silent for minutes: longer than the one-minute timeouts that servers
// have by default.
func TestSilentUpstreamIsWaitedFor(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this takes 70 s")
	}
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "prefill", func(x *upstream.Exchange) {
		x.Sleep(70 * time.Second)
		upstream.Echo(x)
	})
	req := r.Request(t.Context(), t, http.MethodPost, "/v1/chat/completions", harness.Chat("prefill", ""))
	a, err := r.Send(req)
	if err != nil || a.Status != 200 || !strings.Contains(a.Body, "bytes") {
		t.Errorf("%v, status %d, body %s", err, a.Status, a.Body)
	}
}

// endless streams events of 64 KB as fast as they are taken.
func endless(x *upstream.Exchange) {
	event := upstream.Delta(x.Request.Model, strings.Repeat("x", 64<<10))
	x.Stream()
	for !x.Left() {
		x.Chunk(event)
	}
}

// dialStream opens a stream on a bare connection with a small receive buffer
// and returns it after the answer's first bytes.
func dialStream(t *testing.T, r *rig, body string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.Client.URL, "http://"))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	must(t, conn.(*net.TCPConn).SetReadBuffer(64<<10))
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: "+
		"%d\r\n\r\n%s",
		conn.RemoteAddr(), r.APIKey, len(body), body)
	status, err := bufio.NewReaderSize(conn, 16).ReadString('\n')
	if err != nil || !strings.HasPrefix(status, "HTTP/1.1 200") {
		t.Fatalf("opening a stream: %q, %v", status, err)
	}
	return conn
}

// Clients that stop reading must not delay others on the same tunnel. A client that reads no byte for a minute
// is disconnected, a slow one is not.
func TestSlowReaders(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this takes 100 s")
	}
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "endless", endless)
	r.serve(t, "quick", upstream.Events(storyOf(up("quick"))...))
	const stalled = 6
	body := harness.Chat("endless", `,"stream":true`)
	for range stalled {
		dialStream(t, r, body)
	}
	slow := dialStream(t, r, body)
	start := time.Now()
	r.up.WaitRunning(t, stalled+1)
	time.Sleep(2 * time.Second) // until all buffers on the way are full
	for range 50 {
		if a := r.Post(t, harness.Chat("quick", `,"stream":true`)); a.Body != lines(storyOf("quick")...) {
			t.Fatalf("a stream beside stalled clients: status %d, %q", a.Status, a.Body)
		}
	}
	if n := len(r.up.Gone(up("endless"))); n > 0 {
		t.Fatalf("%d streams were cut after %v", n, time.Since(start))
	}
	for deadline := start.Add(time.Minute + limit); len(r.up.Gone(up("endless"))) < stalled &&
		time.Now().Before(deadline); {
		if _, err := io.CopyN(io.Discard, slow, 1<<20); err != nil {
			t.Fatalf("the slow reader was cut after %v: %v", time.Since(start), err)
		}
		time.Sleep(5 * time.Second)
	}
	if _, err := io.CopyN(io.Discard, slow, 1<<20); err != nil {
		t.Errorf("the slow reader was cut with the stalled ones: %v", err)
	}
	gone := r.up.Gone(up("endless"))
	if len(gone) != stalled {
		t.Fatalf("%d streams were cut, want the %d stalled ones", len(gone), stalled)
	}
	for _, at := range gone {
		if d := at.Sub(start); d < 55*time.Second {
			t.Errorf("a stalled stream was cut after %v, want about 60 s", d)
		}
	}
}

// A client that leaves frees the upstream at once: a stream, a stream that has not begun,
// and a plain answer.
func TestDisconnectReachesTheUpstream(t *testing.T) {
	r := newInProcess(t, inprocess.Options{})
	silent := func(x *upstream.Exchange) { x.Hold(nil) }
	r.serve(t, "tokens", upstream.SlowTokens(5*time.Millisecond, nil))
	r.serve(t, "silent", silent)
	for _, c := range []struct{ name, model, more string }{
		{"stream", "tokens", `,"stream":true`},
		{"stream without headers", "silent", `,"stream":true`},
		{"plain", "silent", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var took []time.Duration
			for range 7 {
				took = append(took, leave(t, r, c.model, c.more))
			}
			// The quickest: a busy machine may delay most of them. Pings, every 10 s, would show
			// it too late.
			if slices.Min(took) > 2*time.Second {
				t.Errorf("the upstream noticed after %v", took)
			}
		})
	}
}

// leave starts a request, leaves it, and returns how long the upstream took to
// notice.
func leave(t *testing.T, r *rig, model, more string) time.Duration {
	t.Helper()
	r.up.WaitRunning(t, 0) // not the end of the request before
	before := len(r.up.Gone(up(model)))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := r.Request(ctx, t, http.MethodPost, "/v1/chat/completions", harness.Chat(model, more))
	ended := make(chan error, 1)
	go func() { _, err := r.Send(req); ended <- err }()
	r.up.WaitRunning(t, 1)
	left := time.Now()
	cancel()
	<-ended
	harness.Poll(t, limit, "the upstream noticing", func(context.Context) error {
		if len(r.up.Gone(up(model))) == before {
			return fmt.Errorf("it has not")
		}
		return nil
	})
	r.up.WaitRunning(t, 0)
	return r.up.Gone(up(model))[before].Sub(left)
}
