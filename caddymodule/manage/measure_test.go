package manage_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/observed"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// measured is a model server that answers the long prompt.
func measured(t *testing.T, status int, answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/chat/completions" || len(body) < 1_200_000 ||
			!strings.Contains(string(body), `"max_tokens":1,`) || !strings.Contains(string(body), `"model":"public"`) {
			t.Errorf("%s with %d bytes, %v", r.URL, len(body), err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}
}

// The window is measured through each connector that is online.
func TestMeasure(t *testing.T) {
	cut, whole := measuredAs(2050), measuredAs(600013)
	for _, tt := range []struct {
		name   string
		status int
		answer string
		want   string // the measurement, and the usage
	}{
		{
			"refuses", 400, `{"error":{"n_prompt_tokens":600013,"n_ctx":8192}}`,
			"8192 false false the context window has 8192 tokens; the server refuses longer prompts; 400 in0",
		},
		{"cuts", 200, cut, "4096 true false the context window has 4096 tokens; the server cuts longer prompts and reports " +
			"no error; if it is Ollama, set OLLAMA_CONTEXT_LENGTH there to a larger number; 200 in2050"},
		{"accepts", 200, whole, "600013 false true the context window has at least 600013 tokens; the server accepts the " +
			"longest prompt of this test; 200 in600013"},
		{"does not count", 200, "{}", "0 false false the model server did not count the prompt's tokens, so the " +
			"context window cannot be measured; 200 in300"},
		{
			"fails", 500, `{"error":{"message":"out of memory"}}`,
			"0 false false the model server answered HTTP 500: out of memory; 502 in300",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGateway(t)
			home := g.connector("default", "home", map[string]http.Handler{"ollama": measured(t, tt.status, tt.answer)})
			g.deployment("public", home, "", "")
			all := want[[]manage.Measurement](g, 200, "POST", "/deployments/public/measure", "{}")
			recent := g.activity.Recent("default")
			if len(all) != 1 || len(recent) != 1 || all[0].Connector != "home" {
				t.Fatalf("%+v, %+v", all, recent)
			}
			m, in := all[0], recent[0].InputTokens
			if recent[0].Estimated {
				in /= 1000
			}
			got := fmt.Sprintf("%d %v %v %s; %d in%d", m.ContextWindow, m.Cuts, m.AtLeast, m.Text, recent[0].Status, in)
			if got != tt.want {
				t.Errorf("%s", got)
			}
		})
	}
}

// Each connector of the deployment is asked, and no other one.
func TestMeasureThroughConnectors(t *testing.T) {
	g := newGateway(t)
	cuts := measured(t, 200, measuredAs(2050))
	home := g.connector("default", "home", map[string]http.Handler{"ollama": cuts})
	rack := g.connector("default", "rack", map[string]http.Handler{"ollama": cuts})
	g.connector("default", "other", map[string]http.Handler{"ollama": cuts})
	for name, kind := range map[string]store.ModelKind{"public": store.ChatModel, "vectors": store.EmbeddingsModel} {
		must(t, errOf(g.store.SetDeployment(t.Context(), store.Deployment{
			Account: "default", Name: name, Kind: kind, Connectors: []string{home.info.Connector, rack.info.Connector},
		})))
	}
	names := func() (names []string) {
		for _, m := range want[[]manage.Measurement](g, 200, "POST", "/deployments/public/measure", "{}") {
			names = append(names, m.Connector)
		}
		return names
	}
	if got := names(); !slices.Equal(got, []string{"home", "rack"}) {
		t.Errorf("through %v", got)
	}
	wantError(t, g.do("POST", "/deployments/vectors/measure", "{}"), "is not a chat model")
	wantError(t, g.do("POST", "/deployments/none/measure", "{}"), `deployment "none" not found`)
	g.limit(limits.UsageLimits{TokensPerDay: 1000})
	for _, m := range want[[]manage.Measurement](g, 200, "POST", "/deployments/public/measure", "{}") {
		if !strings.Contains(m.Text, "limited to 1000 tokens per day") {
			t.Errorf("above the limits: %+v", m)
		}
	}
	g.limit(limits.UsageLimits{})
	g.disconnect(rack)
	all := want[[]manage.Measurement](g, 200, "POST", "/deployments/public/measure", "{}")
	if len(all) != 2 || all[0].ContextWindow != 4096 || all[1].Connector != "rack" ||
		!strings.Contains(all[1].Text, "is offline") {
		t.Errorf("through a connector that is offline: %+v", all)
	}
}

// A measurement ends after five minutes. The prompt counts as used: the model may have processed it.
func TestMeasureTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		home := g.connector("default", "home", map[string]http.Handler{"ollama": http.HandlerFunc(hang)})
		g.deployment("public", home, "", "")
		begin := time.Now()
		all := want[[]manage.Measurement](g, 200, "POST", "/deployments/public/measure", "{}")
		if len(all) != 1 || !strings.Contains(all[0].Text, "did not answer within 300 seconds") ||
			time.Since(begin) != 5*time.Minute {
			t.Errorf("%+v after %v", all, time.Since(begin))
		}
		if r := g.activity.Recent("default"); len(r) != 1 || !r[0].Estimated || r[0].InputTokens < 100_000 {
			t.Errorf("recorded: %+v", r)
		}
	})
}

// A measured window is in the list of deployments, and so is that the server cuts prompts.
func TestMeasuredWindowIsListed(t *testing.T) {
	g := newGateway(t)
	cuts := measured(t, 200, measuredAs(2050))
	g.deployment("public", g.connector("default", "home", map[string]http.Handler{"ollama": cuts}), "", "")
	want[[]manage.Measurement](g, 200, "POST", "/deployments/public/measure", "{}")
	d := want[[]manage.Deployment](g, 200, "GET", "/deployments", "")[0]
	if d.ContextWindow != 4096 || d.WindowSource != observed.Measured || d.StateText() != "cuts prompts over 4096 tokens" {
		t.Errorf("%d tokens, %s, %s", d.ContextWindow, d.WindowSource, d.StateText())
	}
}

// A model server that may cut prompts is measured without limits, within a minute. Models of clouds are not.
func TestMeasureIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		cuts := measured(t, 200, measuredAs(2050))
		home := g.connector("default", "home", map[string]http.Handler{"ollama": cuts})
		slow := g.connector("default", "slow", map[string]http.Handler{"ollama": http.HandlerFunc(hang)})
		g.deployment("public", home, "", "")
		for range 2 {
			if got := g.measureIdle(home); got != "4096 measured false 0s" {
				t.Error(got)
			}
			g.limit(limits.UsageLimits{TokensPerDay: 1})
		}
		g.deployment("public", slow, "", "")
		if got := g.measureIdle(slow); got != "0  false 1m0s" {
			t.Error(got)
		}
		recent := g.activity.Recent("default")
		if len(recent) != 3 || recent[1].Operation != activity.Test || recent[1].InputTokens != 2050 ||
			!strings.Contains(recent[0].Error, "within 60 seconds") {
			t.Errorf("%+v", recent)
		}
		for _, name := range []string{"glm-5.1:cloud", "gpt-oss:120b-cloud"} {
			g.deployment("public", home, "", name)
			if g.measureIdle(home); len(g.activity.Recent("default")) != 3 {
				t.Errorf("%s was measured", name)
			}
		}
	})
}

// A server that loads one model at a time is measured with its loaded model alone. A measurement ends when a request
// waits for another one.
func TestMeasureIdleGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		var mu sync.Mutex
		var asked []string
		home := g.connector("default", "home", map[string]http.Handler{"ollama": http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				var q struct{ Model string }
				_ = json.NewDecoder(r.Body).Decode(&q)
				mu.Lock()
				asked = append(asked, q.Model)
				second := len(asked) == 2
				mu.Unlock()
				if second {
					hang(w, r)
				}
				answer(200, "application/json", measuredAs(2050))(w, r)
			})})
		g.ask.Connect("default", home.info.Connector, home, true, "ollama")
		g.deployment("public", home, "", "")
		g.deployment("other", home, "", "")
		if got := g.measureIdle(home); got != "0  true 0s" || asked != nil {
			t.Errorf("nothing is loaded: %s, %s", got, asked)
		}
		play := func(name string) {
			if _, err := g.service.Play(asOperator(t.Context()), manage.Play{Model: name, Prompt: "Hi"}, nil); err != nil {
				t.Error(err)
			}
		}
		play("public")
		// 9.5 s after measuring begins, which looks each second.
		time.AfterFunc(10500*time.Millisecond, func() { play("other") })
		if got := g.measureIdle(home); got != "0  true 10s" {
			t.Errorf("a request waits: %s", got)
		}
		time.Sleep(time.Minute)
		if got := g.measureIdle(home); got != "0  true 0s" || !slices.Equal(asked, []string{"public", "public", "other"}) {
			t.Errorf("another model is loaded: %s, %s", got, asked)
		}
	})
}

// measuredAs is the answer of a model server that has counted so many tokens.
func measuredAs(tokens int) string {
	return fmt.Sprintf(`{"choices":[{"message":{"content":"a"},"finish_reason":"length"}],"usage":{"prompt_tokens":%d}}`,
		tokens)
}

// measureIdle measures the deployment "public", and returns its window, whether it may be tried again, and how long it
// took.
func (g *gateway) measureIdle(through *fakeTunnel) string {
	time.Sleep(time.Second) // for the order of the records
	begin := time.Now()
	d, _ := g.store.Deployment("default", "public")
	again := g.service.MeasureIdle(g.t.Context(), d, through.info.Connector)
	w := g.observed.Window(&d, through.info.Connector, tunnel.DeploymentRoute{})
	return fmt.Sprint(w.Tokens, " ", w.Source, " ", again, " ", time.Since(begin).Round(time.Second))
}

// limit sets the limits of the account.
func (g *gateway) limit(l limits.UsageLimits) {
	g.t.Helper()
	must(g.t, errOf(g.store.SetAccount(g.t.Context(), "default",
		func(a *store.Account) { a.Limits.UsageLimits = l })))
}
