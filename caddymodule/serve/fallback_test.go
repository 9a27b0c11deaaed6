package serve

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// lostTunnel is a tunnel that ends when it gets a request.
type lostTunnel struct {
	fakeTunnel
	lost func(g *testGateway)
}

func (l *lostTunnel) Send(*http.Request, string) (*http.Response, error) {
	l.lost(l.g)
	return nil, link.ErrNotSent
}

// withFallback makes m2 the fallback of m, which is offline.
func withFallback(t *testing.T, kind store.ModelKind) *testGateway {
	t.Helper()
	g := newGateway(t, 64<<20)
	d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
	c, _, err := g.backend.Store.CreateConnector(t.Context(), store.DefaultAccount, "lost")
	if err != nil {
		t.Fatal(err)
	}
	d.Kind = kind
	other := d
	other.Name, d.Fallback, d.Connectors = "m2", "m2", []string{c.ID}
	for _, d := range []store.Deployment{other, d} {
		if _, err := g.backend.Store.SetDeployment(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
	}
	return g
}

// stays fails the test if an answer is not the first error, or if nothing is counted for m.
func (g *testGateway) stays(t *testing.T, path, body string) {
	t.Helper()
	w := g.post(path, body)
	if !strings.Contains(w.Body.String(), "`m` is offline") || w.Header().Get(servedBy) != "" {
		t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
	}
	recent := g.backend.Activity.Recent(store.DefaultAccount)
	first := func(r activity.Request) bool { return r.Deployment == "m" && r.Model == "" }
	if !slices.ContainsFunc(recent, first) || g.counts.running != 0 {
		t.Errorf("%s: recorded %+v, %v requests run", path, recent, g.counts.running)
	}
	g.returned(t)
}

// If the fallback cannot get the request, the first error stands.
func TestFallbackRefuses(t *testing.T) {
	for name, refuse := range map[string]func(t *testing.T, g *testGateway){
		"missing": func(t *testing.T, g *testGateway) {
			if _, err := g.backend.Store.RemoveDeployment(t.Context(), store.DefaultAccount, "m2"); err != nil {
				t.Error(err)
			}
		},
		"memory": func(_ *testing.T, g *testGateway) { g.backend.Memory.Resize(1) },
	} {
		for path, body := range requests {
			g := withFallback(t, store.ChatModel)
			g.connect(&lostTunnel{fakeTunnel{g}, func(g *testGateway) { refuse(t, g) }})
			t.Logf("%s, %s", name, path)
			g.stays(t, path, strings.Replace(body, "TEXT", strings.Repeat("hi there ", 1<<10), 1))
		}
	}
}

// A request has left the queue of its deployment when it enters that of the fallback.
func TestFallbackLeavesItsQueue(t *testing.T) {
	g := withFallback(t, store.ChatModel)
	g.limitTo1(t)
	answer := g.answer
	g.answer = func(r *http.Request) *http.Response {
		if running, _ := g.backend.Turns.Load(store.DefaultAccount, "m"); running != 0 {
			t.Errorf("%d requests run while the fallback has the request", running)
		}
		return answer(r)
	}
	for path, body := range requests {
		lost := false
		g.connect(&lostTunnel{fakeTunnel{g}, func(g *testGateway) {
			lost = true
			if running, _ := g.backend.Turns.Load(store.DefaultAccount, "m"); running != 1 {
				t.Errorf("%d requests run while the tunnel is lost", running)
			}
		}})
		if w := g.post(path, body); w.Code != http.StatusOK || !lost {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	g.returned(t)
}

// Embeddings go to a fallback for embeddings only.
func TestFallbackOfEmbeddings(t *testing.T) {
	const path, body = "/v1/embeddings", `{"model":"m","input":"hi"}`
	g := withFallback(t, store.EmbeddingsModel)
	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("application/json", strings.NewReader(`{"object":"list","data":[],"model":"up"}`), -1)
	}
	if w := g.post(path, body); w.Code != http.StatusOK || w.Header().Get(servedBy) != "m2" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	withFallback(t, store.ChatModel).stays(t, path, body)
}

// Pings meanwhile, which open the answer and estimate the prompt, and large bodies, which wait for turns. The
// fallback has a fallback, which gets nothing.
func TestFallbackWithPings(t *testing.T) {
	g := withFallback(t, store.ChatModel)
	d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m2")
	d.Fallback = "m"
	if _, err := g.backend.Store.SetDeployment(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	g.KeepAlive = time.Microsecond
	for path, body := range requests {
		body = strings.NewReplacer("false,", "true,", "TEXT", strings.Repeat("hi there ", 64<<10)).Replace(body)
		for range 5 {
			w := g.post(path, body)
			for _, opening := range []string{"event: message_start", "event: response.created"} {
				if strings.Count(w.Body.String(), opening) > 1 {
					t.Errorf("%s: %s was sent again", path, opening)
				}
			}
			got := w.Body.String()
			if w.Code != http.StatusOK || strings.Contains(got, `"error":{`) || !strings.Contains(got, `"hi"`) {
				t.Errorf("%s: %d %s", path, w.Code, got)
			}
		}
	}
	if g.counts.running != 0 {
		t.Errorf("%v requests run", g.counts.running)
	}
	g.returned(t)
}

// outcome is what happens to a request that goes to a deployment.
type outcome struct {
	err     error
	status  int
	body    string
	offered bool // the fallback gets the request
	seen    bool // a model may have seen it
}

// oneOutcome is a tunnel in which each request has the same outcome.
type oneOutcome struct {
	fakeTunnel
	outcome
	seenBy *[]string
	name   string
}

func (o *oneOutcome) Send(r *http.Request, _ string) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	if o.seen {
		*o.seenBy = append(*o.seenBy, o.name)
	}
	if o.err != nil {
		return nil, o.err
	}
	response := upstreamAnswer("application/json", strings.NewReader(o.body), -1)
	response.StatusCode = o.status
	return response, nil
}

// Whatever happens to a request at both deployments, at most one model sees it.
func TestFallbackOnce(t *testing.T) {
	outcomes := map[string]outcome{
		"not sent":      {err: link.ErrNotSent, offered: true},
		"no stream":     {err: link.ErrNoCredit, offered: true},
		"server down":   {err: link.ErrUpstreamDown, offered: true},
		"busy":          {err: link.ErrBusy},
		"too large":     {err: link.ErrTooLarge},
		"refused":       {err: link.ErrRefused},
		"reset":         {err: link.ErrUpstreamReset, seen: true},
		"tunnel lost":   {err: link.ErrTunnelLost, seen: true},
		"malformed":     {err: link.ErrUpstreamMalformed, seen: true},
		"answer":        {status: 200, body: completionOf("hi"), seen: true},
		"server error":  {status: 500, body: `{"error":"broken"}`, seen: true},
		"overloaded":    {status: 503, body: `{"error":"busy"}`, seen: true},
		"bad request":   {status: 400, body: `{"error":"bad"}`},
		"too long":      {status: 400, body: `{"error":{"message":"x","n_prompt_tokens":9000,"n_ctx":8000}}`},
		"without model": {status: 404, body: `{"error":"model not found"}`},
	}
	g := withFallback(t, store.ChatModel)
	g.router.QueueLength = -1
	var seenBy []string
	for first, a := range outcomes {
		for second, b := range outcomes {
			for path, body := range requests {
				for _, streamed := range []string{"false,", "true,"} {
					name := fmt.Sprintf("%s, then %s: %s, stream %s", first, second, path, streamed)
					seenBy = nil
					for model, o := range map[string]outcome{"m": a, "m2": b} {
						d, _ := g.backend.Store.Deployment(store.DefaultAccount, model)
						g.connectOne(d.Account, d.Connectors[0], &oneOutcome{fakeTunnel{g}, o, &seenBy, model})
					}
					w := g.post(path, strings.Replace(body, "false,", streamed, 1))
					var want []string
					switch {
					case a.seen:
						want = []string{"m"}
					case a.offered && b.seen:
						want = []string{"m2"}
					}
					if !slices.Equal(seenBy, want) {
						t.Errorf("%s: seen by %q", name, seenBy)
					}
					served := ""
					if a.offered && (b.seen || b.status != 0) {
						served = "m2"
					}
					if w.Header().Get(servedBy) != served {
						t.Errorf("%s: %v", name, w.Header())
					}
				}
			}
		}
	}
	if g.counts.running != 0 {
		t.Errorf("%v requests run", g.counts.running)
	}
	g.returned(t)
}

// downTunnel is a tunnel whose model server cannot be reached by the first request.
type downTunnel struct {
	Tunnel
	up bool
}

func (d *downTunnel) Send(r *http.Request, key string) (*http.Response, error) {
	if !d.up {
		d.up = true
		return nil, link.ErrUpstreamDown
	}
	return d.Tunnel.Send(r, key)
}

// A fallback with the same window gets a limit that fits, too.
func TestFallbackInSmallWindow(t *testing.T) {
	g := newWindowGateway(t)
	d := g.deployment()
	other := d
	other.Name = "m2"
	if _, err := g.backend.Store.SetDeployment(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	g.set(t, func(d *store.Deployment) { d.Fallback = "m2" })
	id := d.Connectors[0]
	g.online(id, 32768)
	r := g.routes[id]
	r.Strict = true
	g.routes[id] = r
	g.connectOne(store.DefaultAccount, id, &downTunnel{Tunnel: connectorTunnel{fakeTunnel{g.testGateway}, g, id}})
	var sent []int
	g.answer = func(r *http.Request) *http.Response {
		var body struct {
			MaxTokens int `json:"max_tokens"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		sent = append(sent, body.MaxTokens)
		return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
	}
	w := g.post("/v1/messages", `{"model":"m","max_tokens":32000,"messages":[{"role":"user","content":"`+
		wordsOf(17000)+`"}]}`)
	if w.Code != http.StatusOK || w.Header().Get(servedBy) != "m2" || len(sent) != 1 || 17000+sent[0] > 32768 {
		t.Errorf("%d %v %.300s, sent with %v", w.Code, w.Header(), w.Body, sent)
	}
}
