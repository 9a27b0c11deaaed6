package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// slowReader reads after a pause.
type slowReader struct {
	io.Reader
	pause time.Duration
}

func (s *slowReader) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	s.pause = 0
	return s.Reader.Read(p)
}

// A model server hangs while a stream waits for its first token, after another one got its. A request that failed does
// not count, and neither does one whose answer is no stream: its first token is not known.
func TestRequestsAreObserved(t *testing.T) {
	role := chunkOf(`{"role":"assistant","content":""}`)
	hello := chunkOf(`{"content":"hello"}`) + "data: [DONE]\n\n"
	for _, streamed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(t, 64<<20)
			start, changes := time.Now().Add(-time.Second), make(chan string, 10)
			g.route = tunnel.DeploymentRoute{State: health.Available, Since: start}
			d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
			d.Connectors = []string{fakeTunnel{}.Connector()}
			g.backend.Observed.Deployment = func(_, _ string) (store.Deployment, bool) { return d, true }
			g.backend.Observed.Changed = func(_, _, _ string, state health.State, _ int) {
				changes <- fmt.Sprintf("%s after %v", state, time.Since(start))
			}
			post := func(status int, pause time.Duration) {
				g.answer = func(*http.Request) *http.Response {
					body, kind := io.Reader(strings.NewReader(completionOf("hello"))), "application/json"
					if !streamed {
						time.Sleep(pause)
					} else {
						kind = "text/event-stream"
						body = io.MultiReader(strings.NewReader(role), &slowReader{strings.NewReader(hello), pause})
					}
					answer := upstreamAnswer(kind, body, -1)
					answer.StatusCode = status
					return answer
				}
				g.post("/v1/chat/completions", fmt.Sprintf(`{"model":"m","stream":%t,"messages":[]}`, streamed))
				synctest.Wait()
			}
			post(500, time.Hour)
			post(200, time.Second)
			post(200, 6*time.Minute)
			close(changes)
			var got, want []string
			if streamed {
				want = []string{"hanging after 1h5m31s", "available after 1h6m2s"}
			}
			for change := range changes {
				got = append(got, change)
			}
			if !slices.Equal(got, want) {
				t.Errorf("streamed %t: %q, want %q", streamed, got, want)
			}
		})
	}
}

// chunkOf returns a chunk of a stream.
func chunkOf(delta string) string {
	return `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"up",` +
		`"choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}` + "\n\n"
}

// streamedCall is a call to a stream.
type streamedCall struct{ dialect.Call }

func (streamedCall) Streamed() bool { return true }

// The time limit ends with the first token, an error in its place, or the attempt. Each attempt has its own.
func TestFirstTokenTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, 64<<20)
		g.route = tunnel.DeploymentRoute{State: health.Available}
		d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
		d.Options.FirstTokenTimeout = "25s"
		ex := &Exchange{authenticated: authenticated{backend: g.backend}}
		ex.Connector = d.Connectors[0]
		attempt := &turn{modelRequest: &modelRequest{exchange: ex, call: streamedCall{}}, deployment: &d}
		var f firstToken
		for what, stop := range map[string]func(){
			"the first token": f.came, "an error": f.stop, "the end": f.end, "": func() {},
		} {
			ctx := f.begin(t.Context(), attempt)
			time.Sleep(24 * time.Second)
			stop()
			time.Sleep(time.Hour)
			if late := errors.As(context.Cause(ctx), new(*dialect.Error)); late != (what == "") {
				t.Errorf("after %q: %v", what, context.Cause(ctx))
			}
			f.end()
			f.end()
			if ctx.Err() == nil {
				t.Errorf("after %q and the end, the context goes on", what)
			}
		}
	})
}
