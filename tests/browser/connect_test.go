package browser

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig/freeport"
)

// A requestLog has the requests of a page, without the headers that may have a key.
type requestLog struct {
	mu      sync.Mutex
	keyed   map[string]bool // paths of requests with the key in Authorization
	elseKey []string        // whatever else has the key
}

// watchKey records which requests of the page have a key.
func (p *Person) watchKey(key string) *requestLog {
	p.t.Helper()
	l := &requestLog{keyed: map[string]bool{}}
	err := chromedp.Listen(p.ctx, func(event any) {
		e, ok := event.(*network.EventRequestWillBeSent)
		if !ok {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if to, err := url.Parse(e.Request.URL); err == nil && e.Request.Headers["Authorization"] == "Bearer "+key {
			l.keyed[to.Host+to.Path] = true
			delete(e.Request.Headers, "Authorization")
		}
		if text, _ := json.Marshal(e.Request); strings.Contains(string(text), key) {
			l.elseKey = append(l.elseKey, string(text))
		}
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.Do(command(network.Enable, network.EnableParams{}))
	return l
}

// kept is the expression for all that outlives a page, and for what the page itself has in its address and document.
const kept = `(async () => JSON.stringify([location.href, document.cookie, {...localStorage}, {...sessionStorage},
	await indexedDB.databases(), self.caches ? await caches.keys() : [], history.state,
	performance.getEntries().map(e => e.name), document.documentElement.outerHTML,
	[...document.querySelectorAll("input, select, textarea")].map(e => e.value)]))()`

// A person with only a key sees its models, limits and use, and sets up a client, with the keyboard alone. The key goes
// nowhere but into the header of requests to the API.
func testOnlyAKey(t *testing.T, r *rig) {
	owner := r.newUser("keyholder", "hana")
	r.paired(owner, "connect-box")
	key := r.key(owner, "for-eli", "scr*")
	r.expectChat(key, "scripted", http.StatusOK)
	r.Manage(t, http.MethodPatch, "/keys/for-eli", map[string]any{
		"account": "keyholder",
		"limits":  map[string]int{"tokens_per_day": 5000, "requests_per_minute": 30, "concurrency": 2},
	}, nil)

	p := r.browser.Person(t, r.URL)
	p.Expect("status of 401") // the browser logs the refusal
	p.Open("/console/sign-in")
	p.tabTo("See its models and limits, and set up a client")
	p.keys(kb.Enter)
	p.Arrives("/console/connect")
	p.focused("#key")
	p.Look("connect")
	log := p.watchKey(key)
	p.focused("#key")
	p.keys(" " + key[:20] + "\r")
	p.Sees("This API key is incomplete")
	p.Look("connect-refused")
	p.Fill("#key", key+" ")
	p.keys(kb.Enter)
	p.Sees("This key may use 1 model.")
	p.focused("#key-title")
	for _, text := range []string{
		"Key for-eli", "scr*", "1 request", "never", "scripted", "available", "chat", "of 5 000",
		"requests per minute", "2 requests",
	} {
		p.Sees(text)
	}
	p.until("the snippets are there", func() bool { return p.shows("curl -N ") })
	p.Sees("sk-svc-YOUR-KEY")
	if everything := Eval[string](p, kept); strings.Contains(everything, key) {
		t.Error("the key is in the page or in what outlives it")
	}
	p.Look("connect-models")

	p.tabTo("Show with my key")
	p.keys(kb.Enter)
	p.Sees(key)
	p.SeesNot("sk-svc-YOUR-KEY")
	p.Press("Hide my key")
	p.SeesNot(key)
	p.Press("Show with my key")
	p.Sees(key)
	if href := Eval[string](p, `location.href`); href != r.URL+"/console/connect" {
		t.Errorf("the address is %s", strings.ReplaceAll(href, key, "KEY"))
	}
	Eval[string](p, `(() => {
		const soon = Object.assign(document.createElement("time"), { dateTime: new Date(Date.now() + 55000).toISOString() });
		soon.dataset.ago = "";
		document.querySelector("main").append(soon);
		return "";
	})()`)
	p.Sees("in a moment") // what resets in less than a minute
	p.Press("Forget the key")
	p.focused("#key")
	if everything := Eval[string](p, kept); strings.Contains(everything, key) {
		t.Error("the forgotten key is in the page or in what outlives it")
	}
	host := strings.TrimPrefix(r.URL, "http://")
	log.mu.Lock()
	defer log.mu.Unlock()
	if got := slices.Sorted(maps.Keys(log.keyed)); !slices.Equal(got, []string{host + "/v1/key", host + "/v1/models"}) {
		t.Errorf("requests with the key: %q", got)
	}
	for _, text := range log.elseKey {
		t.Errorf("another request has the key: %s", strings.ReplaceAll(text, key, "KEY"))
	}
}

// A model whose context window is too small for agents is marked, and offered last.
func testSmallWindow(t *testing.T, r *rig) {
	owner := r.newUser("windows", "wim")
	r.paired(owner, "window-box")
	var connectors []struct{ ID string }
	r.Manage(t, http.MethodGet, "/connectors?account=windows", nil, &connectors)
	for name, tokens := range map[string]int{"scripted": 8192, "scripted-large": 65536} {
		r.Manage(t, http.MethodPut, "/deployments/"+name, map[string]any{
			"account": "windows", "connectors": []string{connectors[0].ID}, "model": "scripted",
			"options": map[string]int{"context_window": tokens},
		}, nil)
	}
	owner.Open("/console/keys/setup")
	if first := firstOption(owner, "#default_model"); first != "scripted-large" {
		t.Errorf("the form offers %s first", first)
	}
	owner.Sees("(window too small for Claude Code: 8k of 32k)")
	owner.Look("client-setup-windows")
	owner.Choose("#default_model", "scripted")
	owner.Press("Get the command")
	owner.Sees("The context window of scripted is too small for Claude Code: 8k of 32k tokens.")
	owner.Look("client-code-window")
	owner.Open("/console/models/show?name=scripted")
	owner.Sees("window too small: 8k of 32k")
	owner.Look("model-window")

	key := r.key(owner, "small", "*")
	p := r.browser.Person(t, r.URL)
	p.Open("/console/connect")
	p.Fill("#key", key)
	p.keys(kb.Enter)
	p.Sees("This key may use 2 models.")
	if first := firstOption(p, "#model"); first != "scripted-large" {
		t.Errorf("the page offers %s first", first)
	}
	p.until("the snippets are there", func() bool { return p.shows("curl -N ") })
	p.SeesNot("window too small")
	p.Choose("#model", "scripted")
	p.until("the clients are marked", func() bool { return p.shows("window too small: 8k of 32k") })
	p.Look("connect-window")

	// A model that does not work is offered after one that does, although that is too small.
	r.Manage(t, http.MethodPut, "/deployments/scripted-large", map[string]any{
		"account": "windows", "connectors": []string{connectors[0].ID}, "model": "gone",
		"options": map[string]int{"context_window": 65536},
	}, nil)
	p.Open("/console/connect")
	p.Fill("#key", key)
	p.keys(kb.Enter)
	p.Sees("model missing")
	if first := firstOption(p, "#model"); first != "scripted" {
		t.Errorf("the page offers %s first", first)
	}
	p.Sees("scripted-large (model missing)")
	p.Look("connect-missing")
}

// The page says what is wrong: no JavaScript, an expired key, one without models, and a gateway that is gone.
func testFaultsOfConnect(t *testing.T, r *rig) {
	owner := r.newUser("faults", "flo")
	key := r.key(owner, "nothing", "*")
	to, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(req *httputil.ProxyRequest) { req.SetURL(to) }}
	var answer sync.Map // of a path, in place of the gateway's
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if instead, ok := answer.Load(req.URL.Path); ok {
			instead.(http.HandlerFunc)(w, req)
			return
		}
		forward.ServeHTTP(w, req)
	}))
	defer proxy.Close()
	p := r.browser.Person(t, proxy.URL)
	p.Expect("Failed to load resource")
	p.Scripts(false)
	p.Open("/console/connect")
	p.Sees("needs JavaScript")
	p.SeesNot("Show models")
	p.Scripts(true)
	p.Open("/console/connect")
	p.SeesNot("needs JavaScript")
	try := func(want string) {
		t.Helper()
		p.Fill("#key", key)
		p.keys(kb.Enter)
		p.Sees(want)
	}
	try("This key cannot use any model now")
	p.Look("connect-none")
	p.Press("Forget the key")
	for want, instead := range map[string]http.HandlerFunc{
		"The gateway cannot be reached.": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"The gateway answered with status 502. Try again later.": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "Bad Gateway", http.StatusBadGateway)
		},
		"The API is not at this address (status 200).": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, "<p>A proxy's page")
		},
		"The gateway cannot be reached. Check": func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "https://evil.example/", http.StatusFound) // the key must not follow it
		},
	} {
		answer.Store("/v1/key", instead)
		try(want)
	}
	answer.Delete("/v1/key")
	for _, other := range []string{"schlüssel", strings.Repeat("k", 600)} {
		p.Fill("#key", other)
		p.keys(kb.Enter)
		p.Sees("This is not an API key: it has other characters")
	}
	r.Manage(t, http.MethodPost, "/keys/nothing/disable", map[string]string{"account": "faults"}, nil)
	try("This API key is disabled.")
}

// A console whose API is another site needs an entry of `cors` there, and says so.
func TestConnectToAnotherSite(t *testing.T) {
	t.Parallel()
	var listed, other string
	for _, site := range []*string{&listed, &other} {
		addr, err := freeport.Addr()
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(addr)
		*site = "http://localhost:" + port
	}
	g := harness.Start(t, harness.Options{
		Address: "localhost", Site: "cors " + listed, Sites: listed + ", " + other + " {\n model_console\n}",
	})
	_, key := g.Key(t, "laptop", "*")
	for site, want := range map[string]string{
		listed: "This key cannot use any model now", other: "its operator can add " + other + " to cors",
	} {
		p := Start(t).Person(t, site)
		if site == other {
			p.Expect("CORS policy")
			p.Expect("Failed to load resource")
		}
		p.Open("/console/connect")
		p.Fill("#key", key)
		p.keys(kb.Enter)
		p.Sees(want)
	}
}
