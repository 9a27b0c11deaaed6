package serve

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/observed"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// windowGateway is a gateway whose connectors have routes of their own.
type windowGateway struct {
	*testGateway
	mu     sync.Mutex                        // guards routes
	routes map[string]tunnel.DeploymentRoute // by connector
	used   map[string]bool                   // connectors of requests
	sent   int                               // requests
}

// connectorTunnel is the tunnel of a connector.
type connectorTunnel struct {
	fakeTunnel
	g  *windowGateway
	id string
}

// Send implements Tunnel. It notes the connector.
func (c connectorTunnel) Send(r *http.Request, key string) (*http.Response, error) {
	c.g.used[c.id] = true
	c.g.sent++
	return c.fakeTunnel.Send(r, key)
}

func newWindowGateway(t *testing.T) *windowGateway {
	t.Helper()
	g := &windowGateway{
		testGateway: newGateway(t, 256<<20), routes: make(map[string]tunnel.DeploymentRoute), used: make(map[string]bool),
	}
	g.Server.Route = func(connector string, _ tunnel.Target) (tunnel.DeploymentRoute, bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		r, ok := g.routes[connector]
		return r, ok
	}
	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
	}
	g.online(g.deployment().Connectors[0], 0)
	g.connectAll()
	return g
}

func (g *windowGateway) deployment() store.Deployment {
	d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
	return d
}

// connectAll connects all connectors of m, so that equal ones are used in turn.
func (g *windowGateway) connectAll() {
	for _, id := range g.deployment().Connectors {
		g.connectOne(store.DefaultAccount, id, connectorTunnel{fakeTunnel{g.testGateway}, g, id})
	}
}

// online connects a connector whose model server lists a window.
func (g *windowGateway) online(connector string, window int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.routes[connector] = tunnel.DeploymentRoute{State: health.Available, Window: window, Since: time.Now()}
}

// offline disconnects a connector.
func (g *windowGateway) offline(connector string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.routes, connector)
}

// set changes the deployment.
func (g *windowGateway) set(t *testing.T, change func(d *store.Deployment)) {
	t.Helper()
	d := g.deployment()
	change(&d)
	if _, err := g.backend.Store.SetDeployment(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// wordsOf returns a text of n tokens.
func wordsOf(n int) string { return strings.Repeat(" word", n) }

// withText returns the request of a path with a text.
func withText(path, text string) string { return strings.ReplaceAll(requests[path], "TEXT", text) }

// A prompt that is surely longer than the window is refused in the words that clients match, and is not sent.
func TestOverlongPrompts(t *testing.T) {
	g := newWindowGateway(t)
	connector := g.deployment().Connectors[0]
	const chat = "/v1/chat/completions"
	status := func(what, path, body string, want int) string {
		t.Helper()
		before := g.sent
		w := g.post(path, body)
		if w.Code != want || (g.sent > before) != (want == 200) {
			t.Errorf("%s: status %d, %d requests sent, %.300s", what, w.Code, g.sent-before, w.Body)
		}
		return w.Body.String()
	}
	g.online(connector, 1000)
	for path, want := range map[string]string{
		chat: `{"error":{"message":"This model's maximum context length is 1000 tokens. However, your messages resulted ` +
			`in 2010 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages",` +
			`"code":"context_length_exceeded"}}`,
		"/v1/responses": `"message":"This model's maximum context length is 1000 tokens. However, your messages resulted ` +
			`in 2010 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"input",` +
			`"code":"context_length_exceeded"`,
		"/v1/messages": `{"type":"invalid_request_error","message":"prompt is too long: 2010 tokens > 1000 maximum"}`,
	} {
		if got := status(path, path, withText(path, wordsOf(2000)), 400); !strings.Contains(got, want) {
			t.Errorf("%s: %s\nwant %s", path, got, want)
		}
	}
	status("a quarter above", chat, withText(chat, wordsOf(1240)), 200)
	status("more than a quarter above", chat, withText(chat, wordsOf(1260)), 400)
	status("a short body", chat, withText(chat, strings.Repeat("1 ", 900)), 200)
	status("an image", chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"`+wordsOf(400)+
		`"},{"type":"image_url","image_url":{"url":"data:image/png;base64,`+strings.Repeat("AAAA", 2000)+`"}}]}]}`, 200)
	status("tools", chat, `{"model":"m","tools":[{"type":"function","function":{"name":"f","parameters":{"$comment":"`+
		wordsOf(2000)+`"}}}],`+withText(chat, wordsOf(9))[len(`{"model":"m",`):], 200)
	g.online(connector, 5000)
	status("a larger window", chat, withText(chat, wordsOf(2000)), 200)
	g.offline(connector)
	status("offline", chat, withText(chat, wordsOf(2000)), 200) // the fake tunnel is there
	g.online(connector, 1000)
	g.set(t, func(d *store.Deployment) { d.Options.Overflow = compat.OverflowPass })
	status("overflow pass", chat, withText(chat, wordsOf(2000)), 200)
	g.set(t, func(d *store.Deployment) { d.Options = compat.Options{ContextWindow: 3000} })
	status("the option", chat, withText(chat, wordsOf(2000)), 200)
	status("the option", chat, withText(chat, wordsOf(4000)), 400)
}

// Prompts go to the connectors where they fit. They are refused if they fit none that is online.
func TestConnectorsWherePromptsFit(t *testing.T) {
	g := newWindowGateway(t)
	g.set(t, func(d *store.Deployment) {
		d.Options.Affinity = compat.AffinityOff // so that each one gets requests
		for _, name := range []string{"big", "new", "away"} {
			c, _, err := g.backend.Store.CreateConnector(t.Context(), store.DefaultAccount, name)
			if err != nil {
				t.Fatal(err)
			}
			d.Connectors = append(d.Connectors, c.ID)
		}
	})
	ids := g.deployment().Connectors
	small, big, unknown, away := ids[0], ids[1], ids[2], ids[3]
	g.connectAll()
	g.online(small, 1000)
	g.online(big, 4000)
	const chat = "/v1/chat/completions"
	send := func(what string, n, status int, want ...string) {
		t.Helper()
		g.used = make(map[string]bool)
		for range 2 * len(ids) {
			if w := g.post(chat, withText(chat, wordsOf(n))); w.Code != status {
				t.Errorf("%s: status %d, want %d", what, w.Code, status)
			}
		}
		slices.Sort(want)
		if used := slices.Sorted(maps.Keys(g.used)); !slices.Equal(used, want) {
			t.Errorf("%s: connectors %v, want %v", what, used, want)
		}
	}
	send("short", 500, 200, ids...)
	send("long", 2000, 200, big, unknown, away)
	send("too long for all", 8000, 400)
	g.online(unknown, 0)
	send("a connector with an unknown window", 8000, 200, unknown, away)
	g.online(away, 16000)
	g.offline(unknown)
	send("a larger window", 8000, 200, unknown, away)
	model := g.list(t)
	if model != 1000 {
		t.Errorf("the list has the window %d", model)
	}
}

// get returns the answer to a GET request.
func (g *windowGateway) get(path string) []byte {
	w := httptest.NewRecorder()
	g.send(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Body.Bytes()
}

// list returns the window of the model m in the list of models, in all spellings.
func (g *windowGateway) list(t *testing.T) int {
	t.Helper()
	type object struct {
		ContextLength  int `json:"context_length"`
		MaxModelLen    int `json:"max_model_len"`
		MaxInputTokens int `json:"max_input_tokens"`
		Meta           struct {
			NCtx int `json:"n_ctx"`
		}
	}
	var all struct{ Data []object }
	var one object
	for path, v := range map[string]any{"/v1/models": &all, "/v1/models/m": &one} {
		w := g.get(path)
		if err := json.Unmarshal(w, v); err != nil {
			t.Fatalf("%s: %v, %s", path, err, w)
		}
	}
	n := one.ContextLength
	if len(all.Data) != 1 || all.Data[0] != one || one.MaxModelLen != n || one.MaxInputTokens != n || one.Meta.NCtx != n {
		t.Errorf("%+v and %+v", all.Data, one)
	}
	return n
}

// A refusal of the model server names the window and the exact size of the prompt.
func TestRefusalIsLearned(t *testing.T) {
	g := newWindowGateway(t)
	g.answer = func(*http.Request) *http.Response {
		answer := upstreamAnswer("application/json", strings.NewReader(`{"error":{"code":400,"message":"too long",`+
			`"type":"exceed_context_size_error","n_prompt_tokens":8626,"n_ctx":4096}}`), -1)
		answer.StatusCode = 400
		return answer
	}
	const path = "/v1/chat/completions"
	body := withText(path, wordsOf(5000))
	if w := g.post(path, body); w.Code != 400 || g.sent != 1 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	w := g.backend.Observed.Window(new(g.deployment()), g.deployment().Connectors[0], tunnel.DeploymentRoute{})
	if (w != observed.Window{Tokens: 4096, Source: observed.Refusal}) {
		t.Errorf("window %+v", w)
	}
	wait.Until(t, "the exact count is learned, and the prompt is not sent again", func() bool {
		before := g.sent
		w := g.post(path, body)
		return w.Code == 400 && g.sent == before && strings.Contains(w.Body.String(), "resulted in 8626 tokens")
	})
	if n := g.list(t); n != 4096 {
		t.Errorf("the list has the window %d", n)
	}
}

// Deployments without a window cost nothing more.
func TestUnknownWindowsCostNothing(t *testing.T) {
	g := newWindowGateway(t)
	key, _ := g.backend.Store.FindKey(g.secret)
	ex := &Exchange{authenticated: authenticated{Account: store.DefaultAccount, Key: key.LiveKey, backend: g.backend}}
	ex.Operation, _ = dialect.Lookup(http.MethodPost, "/v1/chat/completions", nil)
	c := g.request(ex)
	c.deployment, c.size = g.deployment(), 1<<20
	r := &routing{Router: g.router, modelRequest: &c.modelRequest, deployment: &c.deployment}
	if n := testing.AllocsPerRun(1000, func() {
		if derr := c.fitPrompt(); derr != nil {
			t.Error(derr)
		}
		if unfit := r.unfit(); unfit != nil {
			t.Errorf("without room: %v", unfit)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
