package serve

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/tests/rig/caught"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// panickingGateway returns a gateway and its log. A key has one permit, which would be lost if a request
// did not leave.
func panickingGateway(t *testing.T) (*testGateway, *caught.Log) {
	t.Helper()
	g, log := newGateway(t, 64<<20), caught.New()
	g.Translator.Logger, g.backend.completions.logger = log.Logger, log.Logger
	_, err := g.backend.Store.EditKey(t.Context(), store.DefaultAccount, g.key.ID(), func(k *store.Key) error {
		k.Limits = limits.UsageLimits{Concurrency: 1}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return g, log
}

// panicking is the body of an answer that panics after its text.
type panicking struct{ io.Reader }

func (p panicking) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if err != nil {
		panic(caught.Secret)
	}
	return n, nil
}

// A panic before the answer is a 500 in the dialect of the client. The request is recorded, and
// releases its permits.
func TestPanicBeforeTheAnswer(t *testing.T) {
	for path, body := range requests {
		for _, body := range []string{body, strings.Replace(body, `"stream":false`, `"stream":true`, 1)} {
			g, log := panickingGateway(t)
			for i := range 2 {
				before := panics.Total()
				g.answer = func(*http.Request) *http.Response { panic(caught.Secret) }
				w := g.post(path, body)
				if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), `"error"`) ||
					strings.Contains(w.Body.String(), caught.Secret) {
					t.Errorf("%s: status %d, %s", path, w.Code, w.Body)
				}
				log.Expect(t, "serving a request", i+1)
				if panics.Total() == before {
					t.Error("the panic is not counted")
				}
			}
			g.returned(t)
			wait.Until(t, "both requests are recorded",
				func() bool { return len(g.backend.Activity.Recent(store.DefaultAccount)) == 2 })
			if r := g.backend.Activity.Recent(store.DefaultAccount)[0]; r.Status != 500 ||
				r.ErrorClass != string(errCrashed.Class()) {
				t.Errorf("recorded %+v", r)
			}
			if g.counts.running != 0 {
				t.Errorf("%v requests are running", g.counts.running)
			}
		}
	}
}

// After a panic in a stream, the client sees that the answer is broken.
func TestPanicInTheAnswer(t *testing.T) {
	const chunk = `data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"hello"}}]}` +
		"\n\n"
	for path, body := range requests {
		g, log := panickingGateway(t)
		server := httptest.NewServer(http.HandlerFunc(g.send))
		server.Config.ErrorLog = nil
		for i := range 2 {
			g.answer = func(*http.Request) *http.Response {
				return upstreamAnswer("text/event-stream", panicking{strings.NewReader(chunk)}, -1)
			}
			response, err := http.Post(server.URL+path, "application/json",
				strings.NewReader(strings.Replace(body, `"stream":false`, `"stream":true`, 1)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if response.StatusCode != http.StatusOK || !strings.Contains(string(got), "hello") || err == nil {
				t.Errorf("%s: status %d, error %v, %s", path, response.StatusCode, err, got)
			}
			log.Expect(t, "serving a request", i+1)
		}
		server.Close()
		g.returned(t)
		wait.Until(t, "both requests are recorded",
			func() bool { return len(g.backend.Activity.Recent(store.DefaultAccount)) == 2 })
		if r := g.backend.Activity.Recent(store.DefaultAccount)[0]; r.Status != errCrashed.HTTPStatus(dialect.OfPath(path,
			nil)) || r.OutputTokens == 0 || r.BusyMillis == 0 {
			t.Errorf("%s: recorded %+v", path, r)
		}
	}
}

// The first handler panics before it passes the request on.
func TestPanicOfAuthenticator(t *testing.T) {
	g, log := panickingGateway(t)
	open := g.Open
	g.Open = func() (*Backend, error) { panic(caught.Secret) }
	if w := g.post("/v1/messages", requests["/v1/messages"]); w.Code != 500 ||
		!strings.Contains(w.Body.String(), `"api_error"`) {
		t.Errorf("status %d, %s", w.Code, w.Body)
	}
	log.Expect(t, "serving a request", 1)
	g.Open = open
}

// promptless panics in Prompt.
type promptless struct{ dialect.Call }

func (promptless) Prompt() *tokens.Prompt { panic(caught.Secret) }

// After a panic, further samples are processed. Its memory is released, and the request whose prompt
// was to be counted is recorded.
func TestPanicOfSample(t *testing.T) {
	g, log := panickingGateway(t)
	c := g.backend.completions
	counted := make(chan int, 1)
	m := sample{known: true, call: promptless{}, size: 400, memory: g.backend.Memory.Open("account", "owner", "key")}
	m.done = func(n int, _ tokens.Doubt) { counted <- n }
	c.correctEstimates(m)
	if n := <-counted; n != 100 {
		t.Errorf("counted %d tokens", n)
	}
	log.Expect(t, "learning from a request", 1)
	m.done, m.tokens = nil, 100
	c.correctEstimates(m)
	log.Expect(t, "learning from a request", 2)
	g.returned(t)
	d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
	call := chatCall(t)
	wait.Until(t, "a sample is processed again", func() bool {
		m := sample{registration: registration(d), known: true, key: "key", call: call, size: 100, tokens: 12345}
		c.correctEstimates(m)
		return c.calibration.Count(t.Context(), registration(d), "key", call.Prompt()) == 12345
	})
}

// crashingStream panics in Ping.
type crashingStream struct{ dialect.Stream }

func (crashingStream) Ping() []byte { panic(caught.Secret) }

// A panic of the timer that sends pings is raised again by the request.
func TestPanicOfPing(t *testing.T) {
	a := &answer{w: httptest.NewRecorder()}
	a.open(crashingStream{}, time.Millisecond)
	wait.Until(t, "the ping panics", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.crashed != nil
	})
	for _, step := range []func(){func() { _, _ = a.feed(nil) }, func() { _ = a.endStream(nil) }} {
		crashed := a.crashed
		func() {
			defer func() {
				if p := recover(); p != crashed {
					t.Errorf("the request goes on with %v", p)
				}
			}()
			step()
		}()
		a.crashed = crashed
	}
}
