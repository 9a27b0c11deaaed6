package serve

import (
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// Requests to be judged, and the answers of their model server.
const (
	toJudge = `{"model":"m","max_tokens":9,"stream":false,"safeguards":[{"type":"dangerous_tool_use"}],` +
		`"messages":[{"role":"user","content":"hi"}]}`
	withCall = `{"choices":[{"index":0,"message":{"role":"assistant","tool_calls":[{"id":"t1","type":"function",` +
		`"function":{"name":"Bash","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3}}`
	allowed = `{"choices":[{"index":0,"message":{"role":"assistant","content":` +
		`"{\"verdicts\":[{\"call\":1,\"reason\":\"\",\"verdict\":\"allow\"}]}"},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":700}}`
)

// judgeItself makes the deployment m its own judge, for one request at a time.
func (g *testGateway) judgeItself(t *testing.T) {
	t.Helper()
	_, err := g.backend.Store.EditDeployment(t.Context(), store.DefaultAccount, "m", func(d *store.Deployment) error {
		d.Options.Safeguards, d.MaxConcurrency = compat.SafeguardsSelf, 1
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// isJudged reports whether a model server receives the request to the judge.
func isJudged(r *http.Request) bool {
	body, _ := io.ReadAll(r.Body)
	return strings.Contains(string(body), "You check the tool calls")
}

// A panic while the judge decides is no verdict. The answer ends, and the permits are free.
func TestPanicOfJudge(t *testing.T) {
	g, log := panickingGateway(t)
	g.judgeItself(t)
	g.answer = func(r *http.Request) *http.Response {
		if isJudged(r) {
			return upstreamAnswer("application/json", panicking{strings.NewReader("{")}, -1)
		}
		return upstreamAnswer("application/json", strings.NewReader(withCall), -1)
	}
	for i := range 2 {
		for k, body := range []string{toJudge, strings.Replace(toJudge, `"stream":false`, `"stream":true`, 1)} {
			w := g.post("/v1/messages", body)
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"t1":{"type":"unavailable","reason":"error"}`) ||
				strings.Contains(w.Body.String(), "event: error") {
				t.Errorf("status %d, %s", w.Code, w.Body)
			}
			log.Expect(t, "serving a request", 2*i+k+1)
		}
	}
	g.returned(t)
	recent := g.backend.Activity.Recent(store.DefaultAccount)
	statuses := map[string]int{} // of each operation: all have the same
	for _, r := range recent {
		statuses[r.Operation+" "+strconv.Itoa(r.Status)]++
	}
	if statuses["messages 200"] != 4 || statuses["messages/safeguards 500"] != 4 || g.counts.running != 0 {
		t.Errorf("%v running, recorded %+v", g.counts.running, recent)
	}
}

// The next request of the queue does not start before the judge has decided, and the judge does not wait for it.
func TestJudgeHoldsTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, 64<<20)
		g.judgeItself(t)
		judging, decide := make(chan bool), make(chan bool)
		var order []string
		g.answer = func(r *http.Request) *http.Response {
			if !isJudged(r) {
				order = append(order, "request")
				return upstreamAnswer("application/json", strings.NewReader(withCall), -1)
			}
			order = append(order, "judge")
			judging <- true
			<-decide
			return upstreamAnswer("application/json", strings.NewReader(allowed), -1)
		}
		done := make(chan string, 2)
		for range 2 {
			go func() { done <- g.post("/v1/messages", toJudge).Body.String() }()
		}
		for range 2 {
			<-judging
			synctest.Wait()
			decide <- true
		}
		for range 2 {
			if got := <-done; !strings.Contains(got, `"t1":{"type":"evaluated","outcome":"not_flagged"}`) {
				t.Error(got)
			}
		}
		if got := strings.Join(order, " "); got != "request judge request judge" {
			t.Error(got)
		}
		g.returned(t)
	})
}

// Another deployment judges in its own queue: it gets no more requests at once than its limit.
func TestOtherJudgeHasItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, 64<<20)
		d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
		judge := d
		judge.Name, judge.MaxConcurrency = "judge", 1
		d.Options.Safeguards = judge.Name
		for _, d := range []store.Deployment{judge, d} {
			if _, err := g.backend.Store.SetDeployment(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
		var atOnce, most atomic.Int64
		g.answer = func(r *http.Request) *http.Response {
			if !isJudged(r) {
				return upstreamAnswer("application/json", strings.NewReader(withCall), -1)
			}
			most.Store(max(most.Load(), atOnce.Add(1)))
			time.Sleep(time.Second)
			atOnce.Add(-1)
			return upstreamAnswer("application/json", strings.NewReader(allowed), -1)
		}
		done := make(chan string, 3)
		for range cap(done) {
			go func() { done <- g.post("/v1/messages", toJudge).Body.String() }()
		}
		for range cap(done) {
			if got := <-done; !strings.Contains(got, `"t1":{"type":"evaluated","outcome":"not_flagged"}`) {
				t.Error(got)
			}
		}
		if most.Load() != 1 {
			t.Errorf("the judge has got %d requests at once", most.Load())
		}
		g.returned(t)
	})
}

// The words of a judge reach only keys whose scope has it.
func TestScopeOfJudge(t *testing.T) {
	g := newGateway(t, 64<<20)
	d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
	judge := d
	judge.Name, d.Options.Safeguards = "judge", "judge"
	for _, d := range []store.Deployment{judge, d} {
		if _, err := g.backend.Store.SetDeployment(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	blocked := strings.NewReplacer("allow", "block", `\"reason\":\"`, `\"reason\":\"words`).Replace(allowed)
	g.answer = func(r *http.Request) *http.Response {
		if isJudged(r) {
			return upstreamAnswer("application/json", strings.NewReader(blocked), -1)
		}
		return upstreamAnswer("application/json", strings.NewReader(withCall), -1)
	}
	for scope, words := range map[string]string{"*": "words", "judge,m": "words", "m": "The judge has blocked this"} {
		g.key, g.secret = g.newKey(t, store.DefaultAccount, scope)
		w := g.post("/v1/messages", toJudge)
		if !strings.Contains(w.Body.String(), `"outcome":"flagged","explanation":"`+words+`"`) {
			t.Errorf("scope %s: %d %s", scope, w.Code, w.Body)
		}
	}
}

// A fallback without a judge of its own has that of the deployment that was asked for.
func TestFallbackInheritsTheJudge(t *testing.T) {
	g := withFallback(t, store.ChatModel, func(*testGateway) {})
	d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
	d.Options.Safeguards = compat.SafeguardsSelf
	if _, err := g.backend.Store.SetDeployment(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	g.answer = func(r *http.Request) *http.Response {
		if isJudged(r) {
			return upstreamAnswer("application/json", strings.NewReader(allowed), -1)
		}
		return upstreamAnswer("application/json", strings.NewReader(withCall), -1)
	}
	if w := g.post("/v1/messages", toJudge); !strings.Contains(w.Body.String(), `"outcome":"not_flagged"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	g.returned(t)
}

// Deployments that judge each other cannot be set, but a backup may have them. The requests that wait for each other's
// permits end when the judge's time is over.
func TestRestoredCycleOfJudges(t *testing.T) {
	for _, names := range [][]string{{"m", "mb"}, {"m", "mb", "mc"}} {
		synctest.Test(t, func(t *testing.T) {
			kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
			st, err := store.New(storetest.Share(kv), store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			g := gatewayOf(t, st, 64<<20)
			d, _ := st.Deployment(store.DefaultAccount, "m")
			for i, name := range names {
				d.Name, d.MaxConcurrency = name, 1
				if _, err := st.SetDeployment(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				restore(t, kv, "deployments/default/"+name, `"max_concurrency":1`,
					`"max_concurrency":1,"options":{"safeguards":"`+names[(i+1)%len(names)]+`"}`)
			}
			last := names[len(names)-1]
			wait.Until(t, "the cycle is in the view", func() bool {
				d, _ := st.Deployment(store.DefaultAccount, last)
				return d.Options.Safeguards == "m"
			})
			var all sync.WaitGroup // of requests that have their permits
			all.Add(len(names))
			g.answer = func(r *http.Request) *http.Response {
				if isJudged(r) {
					return upstreamAnswer("application/json", strings.NewReader(allowed), -1)
				}
				all.Done()
				all.Wait()
				return upstreamAnswer("application/json", strings.NewReader(withCall), -1)
			}
			start, done := time.Now(), make(chan string)
			for _, name := range names {
				body := strings.Replace(toJudge, `"model":"m"`, `"model":"`+name+`"`, 1)
				go func() { done <- g.post("/v1/messages", body).Body.String() }()
			}
			timeouts := 0
			for range names {
				if strings.Contains(<-done, `"t1":{"type":"unavailable","reason":"timeout"}`) {
					timeouts++
				}
			}
			if took := time.Since(start); timeouts == 0 || took > judgeWait {
				t.Errorf("%d verdicts are timeouts, after %v", timeouts, took)
			}
			g.returned(t)
		})
	}
}

// restore replaces a part of a record without the checks of the store.
func restore(t *testing.T, kv store.KV, key, old, next string) {
	t.Helper()
	item, err := kv.Get(t.Context(), key)
	if err != nil || !strings.Contains(string(item.Value), old) {
		t.Fatalf("%s is %s, %v", key, item.Value, err)
	}
	changed := store.Put(key, []byte(strings.Replace(string(item.Value), old, next, 1)))
	if _, err := kv.Txn(t.Context(), store.Txn{Then: []store.Op{changed}}); err != nil {
		t.Fatal(err)
	}
}
