package serve

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// namePeople makes the requests of the gateway's key name people.
func (g *testGateway) namePeople(t *testing.T, f store.PersonFields) {
	t.Helper()
	_, err := g.backend.Store.EditKey(t.Context(), store.DefaultAccount, g.key.ID(), func(k *store.Key) error {
		k.PersonFields = f
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Bodies that name anna, by path.
var bodiesOfPeople = map[string]string{
	"/v1/chat/completions": `{"user":"anna","model":"m","messages":[{"role":"user","content":"hi"}]}`,
	"/v1/responses":        `{"model":"m","input":"hi","user":"anna"}`,
	"/v1/messages": `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],` +
		`"metadata":{"user_id":"anna"}}`,
	"/v1/embeddings": `{"model":"m","input":"hi","user":"anna"}`,
}

// The header or the field of a key's setting names the person, whose name reaches no model server. What cannot be a
// name is others. Without the setting, the body passes as it is.
func TestPersonOfRequest(t *testing.T) {
	g := newGateway(t, 64<<20)
	var sent string
	g.answer = func(r *http.Request) *http.Response {
		body, _ := io.ReadAll(r.Body)
		sent = fmt.Sprint(r.Header, string(body))
		return respond(200, "application/json", `{"choices":[{"index":0,"message":{"content":"a"}}],"data":[],`+
			`"usage":{"prompt_tokens":3,"completion_tokens":1}}`)
	}
	n := 0
	last := func() activity.Request { // a request may be recorded later
		n++
		wait.Until(t, "it is recorded", func() bool { return len(g.backend.Activity.Recent(store.DefaultAccount)) == n })
		return g.backend.Activity.Recent(store.DefaultAccount)[0]
	}
	post := func(path string, header http.Header) activity.Request {
		t.Helper()
		time.Sleep(2 * time.Millisecond) // requests of a millisecond have no order
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, strings.NewReader(bodiesOfPeople[path]))
		maps.Copy(r.Header, header)
		if g.send(w, r); w.Code != 200 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		return last()
	}
	if r := post("/v1/chat/completions", nil); r.Person != "" || !strings.Contains(sent, `{"user":"anna",`) {
		t.Errorf("without the setting: %q, %s", r.Person, sent)
	}
	g.namePeople(t, store.PersonFields{UserField: true})
	for path := range bodiesOfPeople {
		if r := post(path, nil); r.Person != "anna" || strings.Contains(sent, "anna") {
			t.Errorf("%s: %q, %s", path, r.Person, sent)
		}
	}
	// As Open WebUI sends them with ENABLE_FORWARD_USER_INFO_HEADERS.
	header := http.Header{
		"X-Openwebui-User-Name": {"Anna%20Meyer"}, "X-Openwebui-User-Id": {"7d5b6c1e-0f6a-4d7b-9f57-0d2c8d3c8a11"},
		"X-Openwebui-User-Email": {"anna@example.com"}, "X-Openwebui-User-Role": {"user"},
		"X-Openwebui-Chat-Id": {"c0ffee00-0f6a-4d7b-9f57-0d2c8d3c8a11"},
	}
	g.namePeople(t, store.PersonFields{UserHeader: "X-OpenWebUI-User-Email"})
	if r := post("/v1/chat/completions", header); r.Person != "anna@example.com" ||
		strings.Contains(sent, "example.com") ||
		!strings.Contains(sent, `{"user":"anna",`) {
		t.Errorf("by header: %q, %s", r.Person, sent)
	}
	for value, want := range map[string]string{
		"":                          store.OtherPeople,
		"  Anna Müller ":            "Anna Müller",
		"others":                    store.OtherPeople,
		"a\x00b":                    store.OtherPeople,
		"a\u202eb":                  store.OtherPeople,
		"\xff\xfe":                  store.OtherPeople,
		strings.Repeat("x", 128):    strings.Repeat("x", 128),
		strings.Repeat("x", 129):    store.OtherPeople,
		strings.Repeat("x", 10<<10): store.OtherPeople,
		"../../x/usage/default":     "../../x/usage/default",
	} {
		if r := post("/v1/chat/completions", http.Header{"X-Openwebui-User-Email": {value}}); r.Person != want {
			t.Errorf("%.20q: %.20q, want %.20q", value, r.Person, want)
		}
	}
	for _, seen := range g.counts.seen {
		if strings.Contains(seen, "anna") || strings.Contains(seen, "Anna") {
			t.Errorf("observers of metrics got the name: %s", seen)
		}
	}
}

// People behind one key take turns at a model server: one with many requests does not keep the other waiting.
func TestPeopleTakeTurns(t *testing.T) {
	g := newGateway(t, 64<<20)
	if _, err := g.backend.Store.EditDeployment(t.Context(), store.DefaultAccount, "m", func(d *store.Deployment) error {
		d.MaxConcurrency = 1
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	g.namePeople(t, store.PersonFields{UserField: true})
	var mu sync.Mutex
	var order []string
	begun, next := make(chan bool, 20), make(chan bool)
	g.answer = func(r *http.Request) *http.Response {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		order = append(order, string(body[strings.LastIndex(string(body), "content")+10:][:1]))
		mu.Unlock()
		begun <- true
		<-next
		return respond(200, "application/json", `{"choices":[{"index":0,"message":{"content":"a"}}]}`)
	}
	var requests sync.WaitGroup
	ask := func(person string) {
		requests.Go(func() {
			g.post("/v1/chat/completions",
				`{"model":"m","user":"`+person+`","messages":[{"role":"user","content":"`+person+`"}]}`)
		})
	}
	ask("a")
	wait.For(t, begun, "the first request")
	for i := range 6 {
		ask("a")
		wait.Until(t, "it waits", func() bool { _, n := g.backend.Turns.Load(store.DefaultAccount, "m"); return n == i+1 })
	}
	for i := range 2 {
		ask("b")
		wait.Until(t, "it waits", func() bool { _, n := g.backend.Turns.Load(store.DefaultAccount, "m"); return n == i+7 })
	}
	close(next)
	requests.Wait()
	if got := strings.Join(order, ""); got != "ababaaaaa" && got != "aababaaaa" {
		t.Errorf("the order is %s", got)
	}
}

// Ten thousand names of a day are a thousand people and others, and nothing fails.
func TestManyNames(t *testing.T) {
	g := newGateway(t, 64<<20)
	g.namePeople(t, store.PersonFields{UserField: true})
	people := map[string]bool{}
	for i := range 10_000 {
		c := g.request(&Exchange{authenticated: authenticated{backend: g.backend, Account: store.DefaultAccount, Key: g.key}})
		c.ctx = context.Background()
		c.setPerson(fmt.Sprint("person ", i))
		people[c.exchange.client().Key] = true
	}
	if len(people) != store.MaxPeople+1 {
		t.Errorf("%d people", len(people))
	}
}

// A limit for each person refuses one person in the caller's dialect, and not the other.
func TestLimitOfPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, 64<<20)
		g.answer = func(*http.Request) *http.Response {
			time.Sleep(time.Second)
			return respond(200, "application/json", `{"choices":[{"index":0,"message":{"content":"a"}}],`+
				`"usage":{"prompt_tokens":30,"completion_tokens":10}}`)
		}
		ask := func(person string) *httptest.ResponseRecorder {
			return g.post("/v1/messages", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],`+
				`"metadata":{"user_id":"`+person+`"}}`)
		}
		for name, l := range map[string]limits.UsageLimits{
			"requests_per_minute": {RequestsPerMinute: 1}, "requests_per_day": {RequestsPerDay: 1},
			"tokens_per_day": {TokensPerDay: 1}, "seconds_per_day": {SecondsPerDay: 1},
		} {
			anna, bert := "anna "+name, "bert "+name
			g.namePeople(t, store.PersonFields{UserField: true, PersonLimits: l})
			if w := ask(anna); w.Code != 200 {
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			}
			if w := ask(bert); w.Code != 200 {
				t.Errorf("%s of another person: %d %s", name, w.Code, w.Body)
			}
			if w := ask(anna); w.Code != 429 ||
				!strings.Contains(w.Body.String(), `"type":"error"`) ||
				!strings.Contains(w.Body.String(), "This person is limited to 1 ") || strings.Contains(w.Body.String(), anna) {
				t.Errorf("%s again: %d %s", name, w.Code, w.Body)
			}
		}
		if !slices.Contains(g.counts.seen, "limited: requests_per_day of the person") {
			t.Errorf("observers have seen %q", g.counts.seen)
		}
		g.namePeople(t, store.PersonFields{UserField: true})
		if w := ask("anna requests_per_day"); w.Code != 200 {
			t.Errorf("without limits: %d %s", w.Code, w.Body)
		}
	})
}

// A limit per day counts what a person has used before the gateway started.
func TestLimitOfPersonAfterRestart(t *testing.T) {
	st := storetest.New(t)
	g := gatewayOf(t, st, 64<<20)
	g.namePeople(t, store.PersonFields{UserField: true, PersonLimits: limits.UsageLimits{RequestsPerDay: 5}})
	row := store.UsageRow{
		Account: store.DefaultAccount, Day: time.Now().UTC().Format(time.DateOnly), Key: g.key.ID(), Person: "anna",
		Usage: store.Usage{Requests: 5, ModelRequests: 5},
	}
	if err := st.SaveUsage(t.Context(), []store.UsageRow{row}); err != nil {
		t.Fatal(err)
	}
	g.answer = func(*http.Request) *http.Response {
		return respond(200, "application/json", `{"choices":[{"index":0,"message":{"content":"a"}}]}`)
	}
	for person, want := range map[string]int{"anna": 429, "bert": 200} {
		w := g.post("/v1/chat/completions", `{"model":"m","user":"`+person+`","messages":[{"role":"user","content":"hi"}]}`)
		if w.Code != want {
			t.Errorf("%s: %d %s", person, w.Code, w.Body)
		}
	}
}
