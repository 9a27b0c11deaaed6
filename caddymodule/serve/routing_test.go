package serve

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/turns"
	"github.com/postern-dev/postern/connector/link"
)

// limitTo1 lets m have one request at a time.
func (g *testGateway) limitTo1(t *testing.T) store.Deployment {
	t.Helper()
	d, err := g.backend.Store.EditDeployment(t.Context(), store.DefaultAccount, "m", func(d *store.Deployment) error {
		d.MaxConcurrency = 1
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// slowWriter calls a function before the first byte of the answer is written.
type slowWriter struct {
	*httptest.ResponseRecorder
	before func()
}

func (w *slowWriter) WriteHeader(status int) {
	w.before()
	w.ResponseRecorder.WriteHeader(status)
}

// A place is free once the gateway has read the answer, however slowly the client reads it.
func TestPlaceIsFreeOnceTheAnswerIsRead(t *testing.T) {
	const path = "/v1/chat/completions"
	g := newGateway(t, 64<<20)
	g.limitTo1(t)
	g.router.QueueLength = -1
	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
	}
	w := &slowWriter{httptest.NewRecorder(), func() {
		if other := g.post(path, requests[path]); other.Code != http.StatusOK {
			t.Errorf("meanwhile: %d %s", other.Code, other.Body)
		}
	}}
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(requests[path]))
	r.Header.Set("Authorization", "Bearer "+g.secret)
	if g.send(w, r); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	g.returned(t)
}

// A request that is sent again waits for its place as others do.
func TestRetryEntersTheQueueAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path = "/v1/responses"
		g := newGateway(t, 64<<20)
		g.limitTo1(t)
		var sent []string
		g.answer = func(r *http.Request) *http.Response {
			body, _ := io.ReadAll(r.Body)
			time.Sleep(time.Second) // the next request is in the queue meanwhile
			name := map[bool]string{true: "first", false: "second"}[strings.Contains(string(body), "first")]
			if !strings.Contains(string(body), "reasoning_effort") {
				sent = append(sent, name)
				return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
			}
			sent = append(sent, name+" with effort")
			refusal := upstreamAnswer("application/json", strings.NewReader(
				`{"error":{"message":"Unsupported parameter: 'reasoning_effort'","param":"reasoning_effort"}}`), -1)
			refusal.StatusCode = http.StatusBadRequest
			return refusal
		}
		done := make(chan *httptest.ResponseRecorder)
		for _, body := range []string{
			`{"model":"m","input":"first","reasoning":{"effort":"low"}}`, `{"model":"m","input":"second"}`,
		} {
			go func() { done <- g.post(path, body) }()
			synctest.Wait()
		}
		for range 2 {
			if w := <-done; w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		if got := strings.Join(sent, ", "); got != "first with effort, second, first" {
			t.Errorf("sent %s", got)
		}
		g.returned(t)
	})
}

// The time in the line of a deployment counts in the line of its fallback.
func TestFallbackContinuesTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path = "/v1/chat/completions"
		g := withFallback(t, store.ChatModel)
		d := g.limitTo1(t)
		other, _ := g.backend.Store.Deployment(store.DefaultAccount, "m2")
		other.MaxConcurrency = 1
		if _, err := g.backend.Store.SetDeployment(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		for _, id := range slices.Concat(d.Connectors, other.Connectors) {
			g.connectOne(store.DefaultAccount, id, fakeTunnel{g})
		}
		g.answer = func(*http.Request) *http.Response {
			time.Sleep(time.Hour)
			return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
		}
		var running sync.WaitGroup
		for _, body := range []string{requests[path], strings.Replace(requests[path], `"m"`, `"m2"`, 1)} {
			running.Go(func() { g.post(path, body) })
			synctest.Wait()
		}
		began := time.Now()
		running.Go(func() {
			g.post(path, requests[path])
			if waited := time.Since(began); waited != time.Minute {
				t.Errorf("it has waited for %v", waited)
			}
		})
		time.Sleep(40 * time.Second)
		g.backend.Turns.RemoveConnector(store.DefaultAccount, d.Connectors[0])
		running.Wait()
		g.returned(t)
	})
}

// A line that has accepted a request accepts it again, however many wait there meanwhile.
func TestAcceptedRequestReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path = "/v1/chat/completions"
		g := newHubs(t)
		hub := g.add()
		g.limitTo1(t)
		g.router.QueueLength, g.router.QueueWait = 5000, time.Hour
		var others sync.WaitGroup
		g.connect(hub, &lostTunnel{fakeTunnel{g.testGateway}, func(*testGateway) {
			for i := range 1100 {
				others.Go(func() {
					p, err := g.backend.Turns.Wait(t.Context(), &turns.Request{
						Account: store.DefaultAccount, Deployment: "m", Client: fair.Client{Owner: strconv.Itoa(i)}, Length: 5000,
						Wait: time.Hour,
					})
					if err == nil {
						time.Sleep(time.Second)
						p.Leave()
					}
				})
			}
			synctest.Wait()
			g.connect(hub, fakeTunnel{g.testGateway})
		}})
		if w := g.post(path, requests[path]); w.Code != http.StatusOK {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		others.Wait()
		g.returned(t)
	})
}

// A model begins no turn by a request that its server did not get.
func TestUnsentRequestBeginsNoTurn(t *testing.T) {
	for err, want := range map[error]string{link.ErrTooLarge: "", link.ErrUpstreamReset: "up"} {
		g := newGateway(t, 64<<20)
		d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
		g.backend.Turns.SetConnector(turns.Connector{
			ID: d.Connectors[0], Account: d.Account, Servers: []turns.Server{{Name: "ollama", OneModel: true}},
			Tunnel:  &oneOutcome{fakeTunnel{g}, outcome{err: err}, nil, "m"},
			Resolve: func(_, _, _ string) (string, string, error) { return "ollama", "up", nil },
		})
		const path = "/v1/chat/completions"
		if w := g.post(path, requests[path]); w.Code == http.StatusOK {
			t.Errorf("%v: %s", err, w.Body)
		}
		if s := g.backend.Turns.Servers(d.Account); len(s) != 1 || s[0].Loaded != want {
			t.Errorf("%v: %+v", err, s)
		}
	}
}

// A stream whose first event rejects the effort is sent again, and the client gets the second answer.
func TestEffortIsRejectedInStream(t *testing.T) {
	g, sent := newGateway(t, 64<<20), 0
	g.answer = func(*http.Request) *http.Response {
		if sent++; sent == 1 {
			return upstreamAnswer("text/event-stream",
				strings.NewReader(`data: {"error":{"message":"reasoning_effort is not supported","code":400}}`+"\n\n"), -1)
		}
		return upstreamAnswer("application/json", strings.NewReader(completionOf("hello there")), -1)
	}
	w := g.post("/v1/responses", `{"model":"m","stream":true,"store":false,"reasoning":{"effort":"high"},"input":"hi"}`)
	if sent != 2 || !strings.Contains(w.Body.String(), "hello there") {
		t.Errorf("sent %d times, %d %.300q", sent, w.Code, w.Body)
	}
}
