//go:build linux

package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig/lab"
	"github.com/postern-dev/postern/tests/upstream"
)

// patience is the limit for actions without faults, on a machine that may stall for seconds.
const patience = harness.Patience

// long skips a test that waits for long timeouts, with -short. Tests of connector/agent and caddymodule/tunnel
// cover these with a fake clock.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this waits for long timeouts")
	}
}

// A rig is a lab with a gateway on one side, and a connector with its upstream on the other.
type rig struct {
	*lab.Lab
	*harness.Client
	gateway *harness.Gateway
	up      *upstream.Server
	box     *harness.Connector
}

func newRig(t *testing.T, o harness.Options) *rig {
	t.Helper()
	r := newGateway(t, o)
	r.box = r.connector(t, "box", map[string]any{})
	r.launch(t, r.box)
	r.box.WaitState(t, "online", patience)
	r.box.Process.WaitLog(t, `"msg":"connected"`, patience) // the log may have a delay
	return r
}

// newGateway returns a rig without a connector.
func newGateway(t *testing.T, o harness.Options) *rig {
	t.Helper()
	l, err := lab.New()
	must(t, err)
	t.Cleanup(l.Close)
	r := &rig{Lab: l}
	r.Home.Do(func() { r.up = upstream.Start(t) })
	o.Address = r.GatewayAddress
	r.gateway = harness.Start(t, o)
	_, key := r.gateway.Key(t, "all", "*")
	r.Client = r.gateway.Client(t, key)
	return r
}

// must fails the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connector creates a connector for the rig's upstream, with additional configuration.
func (r *rig) connector(t *testing.T, name string, config map[string]any) *harness.Connector {
	t.Helper()
	config["upstream"] = r.up.URL
	return r.gateway.NewConnector(t, name, config)
}

// launch starts a connector's process at home.
func (r *rig) launch(t *testing.T, c *harness.Connector) *harness.Process {
	t.Helper()
	r.Home.Do(func() { c.Launch(t) })
	return c.Process
}

// serve deploys a model under its name at the upstream.
func (r *rig) serve(t *testing.T, name string, h upstream.Handler) {
	t.Helper()
	r.up.Handle(name, h)
	r.gateway.Deploy(t, name, r.box.ID, "", name)
}

// online returns how often a connector has come online.
func (r *rig) online(c *harness.Connector) int {
	n := 0
	for line := range strings.Lines(r.gateway.Process.Log()) {
		if strings.Contains(line, `"msg":"connector online"`) && strings.Contains(line, c.ID) {
			n++
		}
	}
	return n
}

// transport returns the transport of a connector's last tunnel, or "" if it is not in the log.
func transport(c *harness.Connector) string {
	const field = `"transport":"`
	log := c.Process.Log()
	i := strings.LastIndex(log, field)
	if i < 0 {
		return ""
	}
	name, _, _ := strings.Cut(log[i+len(field):], `"`)
	return name
}

// waitAnswer repeats a request until it has an answer with status 200. It returns how long that took.
func (r *rig) waitAnswer(t *testing.T, model string, limit time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	harness.Poll(t, limit, "an answer of "+model, func(ctx context.Context) error {
		a, err := r.Send(r.Request(ctx, t, http.MethodPost, "/v1/chat/completions", harness.Chat(model, "")))
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("status %d: %s", a.Status, a.Body)
		}
		if err == nil {
			err = a.Err
		}
		return err
	})
	return time.Since(start)
}

// A tail reads a stream of [upstream.SlowTokens].
type tail struct {
	stream *harness.Stream
	tokens atomic.Int64 // number of tokens, received in order
	done   chan struct{}
	last   string // the last event
	err    error  // error at the end; nil after a proper end
}

// follow opens a stream and reads it until it ends.
func (r *rig) follow(t *testing.T, model string) *tail {
	t.Helper()
	f := &tail{stream: r.Stream(t, harness.Chat(model, `,"stream":true`)), done: make(chan struct{})}
	if f.stream.Status != http.StatusOK {
		t.Fatalf("the stream of %s has status %d", model, f.stream.Status)
	}
	go func() {
		defer close(f.done)
		for {
			event, err := f.stream.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) || event != "" {
					f.err = fmt.Errorf("after %d tokens: %w", f.tokens.Load(), err)
				}
				return
			}
			if !strings.HasPrefix(event, "data:") {
				continue // a ping
			}
			f.last = event
			if strings.Contains(event, "token") && !f.counts(event) {
				f.err = fmt.Errorf("unexpected event after token %d: %s", f.tokens.Load(), event)
				return
			}
		}
	}()
	return f
}

// counts counts the event and returns true if it has the next token.
func (f *tail) counts(event string) bool {
	next := f.tokens.Load() + 1
	if !strings.Contains(event, fmt.Sprintf(`"token%d "`, next)) {
		return false
	}
	f.tokens.Store(next)
	return true
}

// wait waits until n more tokens have arrived.
func (f *tail) wait(t *testing.T, n int, limit time.Duration) {
	t.Helper()
	want := f.tokens.Load() + int64(n)
	harness.Poll(t, limit, "more tokens of a running stream", func(context.Context) error {
		if f.over() {
			t.Fatalf("the stream has ended (%v) with %s", f.err, f.last)
		}
		if got := f.tokens.Load(); got < want {
			return fmt.Errorf("got %d of %d", got, want)
		}
		return nil
	})
}

// over reports whether the stream has ended. Only then, last and err are valid.
func (f *tail) over() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// whole waits for the end of the stream and checks that the answer is complete.
func (f *tail) whole(t *testing.T) {
	t.Helper()
	f.end(t)
	if f.err != nil || f.last != upstream.Done {
		t.Errorf("the stream ended with %q, %v", f.last, f.err)
	}
}

// end waits for the end of the stream, which comes at the latest after QUIC's limit.
func (f *tail) end(t *testing.T) {
	t.Helper()
	select {
	case <-f.done:
	case <-time.After(20*time.Second + patience):
		t.Fatalf("the stream has not ended after %d tokens", f.tokens.Load())
	}
}
