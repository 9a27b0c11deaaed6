package serve

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/turns"
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

// areJudged sends requests for these models at once, and fails the test if one gets no verdict.
func (g *testGateway) areJudged(t *testing.T, models ...string) {
	t.Helper()
	done := make(chan string)
	for _, model := range models {
		body := strings.Replace(toJudge, `"model":"m"`, `"model":"`+model+`"`, 1)
		go func() { done <- g.post("/v1/messages", body).Body.String() }()
	}
	for range models {
		if got := <-done; !strings.Contains(got, `"t1":{"type":"evaluated","outcome":"not_flagged"}`) {
			t.Error(got)
		}
	}
}

// The judge's time begins with its place. Neither the concurrency nor the rate of the key keeps it waiting, and its
// tokens count for the key.
func TestTimeOfJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, 64<<20)
		g.judgeItself(t)
		_, err := g.backend.Store.EditKey(t.Context(), store.DefaultAccount, g.key.ID(), func(k *store.Key) error {
			k.Limits = limits.UsageLimits{Concurrency: 1, RequestsPerMinute: 1, TokensPerDay: 5000}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		g.answer = func(r *http.Request) *http.Response {
			if isJudged(r) {
				time.Sleep(judgeWait - time.Second)
				return upstreamAnswer("application/json", strings.NewReader(allowed), -1)
			}
			go func() { // another request gets the place before the judge
				place, err := g.backend.Turns.Wait(t.Context(), &turns.Request{
					Account: store.DefaultAccount, Deployment: "m", Client: fair.Client{Key: "other"}, Priority: turns.High,
				})
				if err != nil {
					t.Error(err)
				}
				time.Sleep(30 * time.Second)
				place.Leave()
			}()
			synctest.Wait()
			return upstreamAnswer("application/json", strings.NewReader(withCall), -1)
		}
		g.areJudged(t, "m")
		used, err := g.backend.Limiter.Usage(t.Context(), store.DefaultAccount,
			limits.AppendLevels(nil, store.DefaultAccount, nil, g.key.ID()))
		if err != nil || used.Day.Tokens != 703 || used.Day.Requests != 2 {
			t.Errorf("used %+v, %v", used.Day, err)
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
		g.areJudged(t, "m", "m", "m")
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
	for scope, words := range map[string]string{"*": "words", "judge,m": "words", "m": "The judge blocked this"} {
		g.key, g.secret = g.newKey(t, store.DefaultAccount, scope)
		w := g.post("/v1/messages", toJudge)
		if !strings.Contains(w.Body.String(), `"outcome":"flagged","explanation":"`+words+`"`) {
			t.Errorf("scope %s: %d %s", scope, w.Code, w.Body)
		}
	}
}

// A fallback without a judge of its own has that of the deployment that was asked for.
func TestFallbackInheritsTheJudge(t *testing.T) {
	g := withFallback(t, store.ChatModel)
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

// Models that judge each other wait for no place while they have one.
func TestModelsThatJudgeEachOther(t *testing.T) {
	for _, names := range [][]string{{"m", "mb"}, {"m", "mb", "mc"}} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateway(t, 64<<20)
			d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
			for _, judged := range []bool{false, true} { // a judge must exist
				for i, name := range names {
					if d.Name, d.MaxConcurrency = name, 1; judged {
						d.Options.Safeguards = names[(i+1)%len(names)]
					}
					if _, err := g.backend.Store.SetDeployment(t.Context(), d); err != nil {
						t.Fatal(err)
					}
				}
			}
			var all sync.WaitGroup // of requests that have their places
			all.Add(len(names))
			g.answer = func(r *http.Request) *http.Response {
				time.Sleep(300 * time.Millisecond)
				if isJudged(r) {
					return upstreamAnswer("application/json", strings.NewReader(allowed), -1)
				}
				all.Done()
				all.Wait()
				return upstreamAnswer("application/json", strings.NewReader(withCall), -1)
			}
			start := time.Now()
			if g.areJudged(t, names...); time.Since(start) > 2*time.Second {
				t.Errorf("it took %v", time.Since(start))
			}
			g.returned(t)
		})
	}
}
