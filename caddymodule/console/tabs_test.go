package console

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/tests/asktest"
)

// tabsPin is a well-formed pin.
var tabsPin = base64.RawURLEncoding.EncodeToString(make([]byte, sha256.Size))

// lines are the fake tunnels of a gateway.
type lines struct {
	mu    sync.Mutex
	infos []tunnel.Info
	serve map[string]http.Handler // by connector id
	asked atomic.Int64            // requests to model servers
	ask   asktest.Gateway
}

func (l *lines) Sessions() []tunnel.Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.infos
}

func (l *lines) Counters() tunnel.Counters { return tunnel.Counters{} }

func (l *lines) Tunnel(id string) (manage.Tunnel, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.serve[id]
	return line{h}, ok
}

func (l *lines) Recheck(string, tunnel.Target) bool { return false }

// report sets the reported upstream of a connector.
func (l *lines) report(c store.Connector, server health.Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.infos {
		if l.infos[i].Connector == c.ID {
			l.infos[i].States = []tunnel.UpstreamState{{Name: "default", Server: server, Since: time.Now()}}
		}
	}
}

// disconnect takes all connectors offline.
func (l *lines) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, info := range l.infos {
		l.ask.Disconnect(info.Account, info.Connector)
	}
	l.infos, l.serve = nil, make(map[string]http.Handler)
}

// connect brings a connector online with the upstream "default", which serves
// models.
func (l *lines) connect(c store.Connector, models ...string) {
	var list []string
	for _, m := range models {
		list = append(list, fmt.Sprintf(`{"id":%q,"object":"model"}`, m))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.infos = append(l.infos, tunnel.Info{
		Connector: c.ID, Account: c.Account, Name: c.Name, Session: "ses_" + c.ID, Version: "v9.9.9",
		OS: "linux/amd64", Transport: "quic",
		Remote: "203.0.113.7:40312", Since: time.Now().Add(-time.Hour), RTT: 23 * time.Millisecond,
		Upstreams: []string{"default"},
		States: []tunnel.UpstreamState{{
			Name: "default", Server: health.Reported(true, slices.Clone(models), false),
			Since: time.Now(),
		}},
	})
	l.ask.Connect(c.Account, c.ID, connectorLine{l, c.ID}, false, "default")
	l.serve[c.ID] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/models") {
			fmt.Fprintf(w, `{"object":"list","data":[%s]}`, strings.Join(list, ","))
			return
		}
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"stream":true`) { // a measurement
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"a"},"finish_reason":"length"}]}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		if strings.Contains(string(body), `"get_weather"`) {
			_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1",`+
				`"function":{"name":"get_weather","arguments":"{\"city\":\"Paris\"}"}}]},"finish_reason":"tool_calls"}]}`+
				"\n\ndata: [DONE]\n\n")
			return
		}
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Good <b>day</b>"}}]}`+
			"\n\n"+
			`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":5,"completion_tokens":7}}`+"\n\ndata: [DONE]\n\n")
	})
}

// line is one tunnel: a handler in place of a connector.
type line struct{ handler http.Handler }

func (l line) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	l.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// connectorLine is the present tunnel of a connector.
type connectorLine struct {
	*lines
	id string
}

func (l connectorLine) RoundTrip(r *http.Request) (*http.Response, error) {
	t, _ := l.Tunnel(l.id)
	return t.RoundTrip(r)
}

func (l connectorLine) Resolve(public, upstream, model string) (string, string, error) {
	return line{}.Resolve(public, upstream, model)
}

func (l line) Resolve(public, upstream, model string) (string, string, error) {
	if upstream == "" {
		upstream = "default"
	}
	if model == "" {
		model = public
	}
	return upstream, model, nil
}

func (g *browser) connector(name string) store.Connector {
	g.Helper()
	c, _, err := g.store.CreateConnector(g.Context(), store.DefaultAccount, name)
	must(g, err)
	return c
}

func (g *browser) deployment(name string, c store.Connector) {
	g.Helper()
	must(g, errOf(g.store.SetDeployment(g.Context(),
		store.Deployment{Account: store.DefaultAccount, Name: name, Connectors: []string{c.ID}})))
}

// has checks that a page has all of the texts.
func has(t testing.TB, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page has no %q:\n%s", text, mainPart(page))
		}
	}
}

// lacks checks that a page has none of the texts.
func lacks(t testing.TB, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q:\n%s", text, mainPart(page))
		}
	}
}

func mainPart(page string) string {
	if _, rest, ok := strings.Cut(page, "<main"); ok {
		page = rest
	}
	return page[:min(len(page), 6000)]
}

// remoteIP is the address of a request's connection.
func remoteIP(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return host
}

func TestSentence(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "no model": "No model.", "é is no model.": "É is no model.", "ßx": "ßx.", "`x` is `y`": "`x` is `y`",
		"a": "A.",
	} {
		if got := sentence(text); got != want {
			t.Errorf("%q becomes %q, not %q", text, got, want)
		}
	}
}
