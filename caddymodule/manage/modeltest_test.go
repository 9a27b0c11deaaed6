package manage_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

func TestModelTest(t *testing.T) {
	tests := []struct {
		name   string
		speak  http.HandlerFunc
		tokens int
		first  float64 // ms
		speed  float64 // tokens/s
		answer string
		error  string
	}{
		{"by usage", events(role, "wait", hello, "wait", more, stop, usage, done), 11, 100, 100, "Hello [31m", ""},
		{"counted", events("wait", hello, "wait", more, "wait", hello, stop, done), 3, 100, 10, "Hello [31mHel", ""},
		{
			"thoughts count and are not shown", events("wait", think, "wait", think, "wait", hello, stop, done), 3, 100, 10,
			"Hel", "",
		},
		{
			"nothing but thoughts", events("wait", `{"choices":[{"delta":{"reasoning":"hm"}}]}`, "wait", think, stop, done), 2,
			100, 10, "", "",
		},
		{
			"parts", events("wait", `{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text",`+
				`"text":"hm"}]}]}}]}`, "wait", `{"choices":[{"delta":{"content":[{"type":"text","text":"Hi"}]}}]}`, stop, done), 1,
			200, 5, "Hi", "",
		},
		{"without a last event", events("wait", hello, "wait", more, stop), 2, 100, 10, "Hello [31m", ""},
		{
			"all at once", events("wait",
				`{"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}],"usage":{"completion_tokens":10}}`, done), 10,
			100, 100, "Hello", "",
		},
		{"not streamed", func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Millisecond)
			answer(200, "application/json; charset=utf-8",
				`{"choices":[{"message":{"content":"Hello"}}],"usage":{"completion_tokens":5}}`)(w, r)
		}, 5, 100, 50, "Hello", ""},
		{
			"comments and other fields", events("wait", hello+"\n: comment\nid: 3\nevent: x", "wait", more, stop, done), 2, 100,
			10, "Hello [31m", "",
		},

		{"empty", events(role, stop, done), 0, 0, 0, "", "the model's answer is empty; check that it is a chat model"},
		{"no events", events(), 0, 0, 0, "", "closed the stream before the answer was complete"},
		{"tokens that are no text", events(stop, usage, done), 11, 0, 0, "", "produced 11 tokens, but no text"},
		{
			"ends in the middle", events("wait", hello), 1, 100, 10, "Hel",
			"closed the stream before the answer was complete",
		},
		{"broken off", events("wait", hello, "abort"), 1, 100, 10, "Hel", "closed the stream before the answer was complete"},
		{"broken off before", events("abort"), 0, 0, 0, "", "closed the stream before the answer was complete"},
		{
			"error in the stream", events("wait", hello, `{"error":{"message":"out of memory"}}`), 1, 100, 10, "Hel",
			"the model server reported an error: out of memory",
		},
		{"not JSON", events(`hello`), 0, 0, 0, "", "a valid JSON object: hello"},
		{"not streamed and broken", answer(200, "application/json", `{`), 0, 0, 0, "", "a valid JSON object: {"},
		{
			"refused", answer(404, "application/json", `{"error":"model \"upstream-model\" not found, try pulling it first"}`),
			0, 0, 0, "", `the model server answered HTTP 404: model "upstream-model" not found, try pulling it first`,
		},
		{
			"long error", answer(400, "text/plain", strings.Repeat("x", 100_000)), 0, 0, 0, "",
			"the model server refused the request: xxx",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := try(t, server{speak: tt.speak, tool: goodCall})
				if got.OK != (tt.error == "") || !strings.Contains(got.Error, tt.error) || len(got.Error) > 400 {
					t.Errorf("ok = %v, error = %q, want %q", got.OK, got.Error, tt.error)
				}
				if got.Tokens != tt.tokens || got.FirstTokenMillis != tt.first || got.TokensPerSecond != tt.speed ||
					got.Answer != tt.answer {
					t.Errorf("result = %+v", got)
				}
				if tools := map[bool]string{true: manage.ToolsWork, false: manage.ToolsUnknown}[got.OK]; got.Tools != tools {
					t.Errorf("tools = %q, want %q", got.Tools, tools)
				}
			})
		})
	}
}

func TestModelTestOfTools(t *testing.T) {
	speak := events(hello, stop, done)
	words := func(finish string) http.HandlerFunc {
		return answer(200, "application/json",
			`{"choices":[{"message":{"content":"It is sunny."},"finish_reason":"`+finish+`"}]}`)
	}
	tests := []struct {
		name   string
		tool   http.HandlerFunc
		tools  string
		reason string
	}{
		{"works", goodCall, manage.ToolsWork, ""},
		{"words", words("stop"), manage.ToolsNo, "with text"},
		{"not done", words("length"), manage.ToolsUnknown, "did not finish within 512 tokens"},
		{"made up tool", call("get_wether", `{}`), manage.ToolsNo, `called "get_wether", which is not one of its tools`},
		{"broken arguments", call("get_weather", `{"city":`), manage.ToolsNo, "arguments"},
		{"no arguments", call("get_weather", ``), manage.ToolsNo, "arguments"},
		{"other arguments", call("get_weather", `{"town":"Paris"}`), manage.ToolsNo, "arguments"},
		{
			"Ollama without tools", answer(400, "application/json",
				`{"error":{"message":"registry.ollama.ai/library/phi does not support tools"}}`), manage.ToolsNo,
			"does not support tools",
		},
		{
			"vLLM without a parser", answer(400, "application/json",
				`{"object":"error","message":"\"auto\" tool choice requires --enable-auto-tool-choice"}`), manage.ToolsNo,
			"--enable-auto-tool-choice",
		},
		{
			"fails", answer(500, "application/json", `{"error":{"message":"overloaded"}}`), manage.ToolsUnknown,
			"HTTP 500: overloaded",
		},
		{
			"not JSON", answer(200, "text/html", `<html>`), manage.ToolsUnknown,
			"closed the stream before the answer was complete",
		},
		{
			"no choices", answer(200, "application/json", `{"choices":[]}`), manage.ToolsUnknown,
			"closed the stream before the answer was complete",
		},
		{
			"broken off", func(http.ResponseWriter, *http.Request) { abort() }, manage.ToolsUnknown,
			"was lost before it answered",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := try(t, server{speak: speak, tool: tt.tool})
			if !got.OK || got.Error != "" || got.Tools != tt.tools || !strings.Contains(got.ToolsReason, tt.reason) ||
				(tt.reason == "") != (got.ToolsReason == "") {
				t.Errorf("result = %+v", got)
			}
		})
	}
}

// A test ends after at most a minute.
func TestModelTestIsBoundedInTime(t *testing.T) {
	late := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "data: "+hello+"\n\n")
		hang(w, r)
	}
	for name, s := range map[string]server{
		"no answer":         {speak: hang, tool: goodCall},
		"answer gets stuck": {speak: late, tool: goodCall},
		"tools get stuck":   {speak: events(hello, stop, done), tool: hang},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				got := try(t, s)
				if took := time.Since(begin); took != time.Minute {
					t.Errorf("took %v", took)
				}
				text := "the model server did not answer within 60 seconds."
				if name == "tools get stuck" {
					if !got.OK || got.Tools != manage.ToolsUnknown || got.ToolsReason != text {
						t.Errorf("result = %+v", got)
					}
				} else if got.OK || got.Error != text {
					t.Errorf("result = %+v", got)
				}
			})
		})
	}
}

// The answer of a server that ignores max_tokens is cut, by events and by bytes.
func TestModelTestIsBoundedInBytes(t *testing.T) {
	endless := func(event string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := io.WriteString(w, event); err != nil {
					return
				}
			}
		}
	}
	got := try(t, server{speak: endless("data: " + hello + "\n\n"), tool: goodCall})
	if !got.OK || got.Tokens != 256 || len(got.Answer) > 404 {
		t.Errorf("endless answer: %+v", got)
	}
	if got := try(t, server{speak: endless("data: xxxxxxxx"), tool: goodCall}); got.OK || got.Error == "" {
		t.Errorf("one endless line: %+v", got)
	}
}

// A test uses the connector that a request would use, and reports its name.
func TestModelTestChooses(t *testing.T) {
	g := newGateway(t)
	first := g.connector("default", "first", map[string]http.Handler{"a": server{}})
	second := g.connector("default", "second", map[string]http.Handler{"a": server{}})
	g.deployment("m", first, "a", "")
	_, err := g.store.SetDeployment(t.Context(), store.Deployment{
		Account: "default", Name: "m", Connectors: []string{first.info.Connector, second.info.Connector}, Upstream: "a",
	})
	must(t, err)
	got := want[manage.TestResult](g, 200, "POST", "/deployments/m/test", "{}")
	used := map[string]*fakeTunnel{"first": first, "second": second}[got.Connector]
	if used == nil || used.requests.Load() == 0 || first.requests.Load()+second.requests.Load() != used.requests.Load() {
		t.Errorf("asked %q; requests %d and %d", got.Connector, first.requests.Load(), second.requests.Load())
	}
}

func TestModelTestWithoutARoute(t *testing.T) {
	g := newGateway(t)
	home := g.connector("default", "home", map[string]http.Handler{"a": server{}, "b": server{}})
	g.deployment("m", home, "", "")
	got := want[manage.TestResult](g, 200, "POST", "/deployments/m/test", "{}")
	if got.OK || !strings.Contains(got.Error, "has no upstream for it") || got.Tools != manage.ToolsUnknown {
		t.Errorf("no route: %+v", got)
	}
	g.deployment("m", home, "a", "")
	home.err = fmt.Errorf("opening: %w", link.ErrUpstreamDown)
	if got = want[manage.TestResult](g, 200, "POST", "/deployments/m/test", "{}"); got.OK ||
		!strings.Contains(got.Error, "cannot connect to the model server") {
		t.Errorf("upstream down: %+v", got)
	}
	g.disconnect(home)
	if got = want[manage.TestResult](g, 200, "POST", "/deployments/m/test", "{}"); got.OK ||
		!strings.Contains(got.Error, "is offline") {
		t.Errorf("offline: %+v", got)
	}
	w := g.do("POST", "/deployments/none/test", "{}")
	if w.Code != 404 {
		t.Errorf("unknown deployment: %d", w.Code)
	}
	wantError(t, w, `deployment "none" not found`)
}

// Tests are in the activity and in the usage, as requests without a key and without texts of
// the model server.
func TestModelTestsAreRecorded(t *testing.T) {
	counted := `{"choices":[],"usage":{"prompt_tokens":21,"completion_tokens":11}}`
	fails := answer(500, "application/json", `{"error":{"message":"quartz-sphinx"}}`)
	for name, tt := range map[string]struct {
		speak, tool http.HandlerFunc
		want        []string // the newest first
	}{
		"works": {events("wait", hello, stop, counted, done), goodCall, []string{
			"test 200   in≈ out≈", "test 200   in21 out11",
		}},
		"fails": {fails, goodCall, []string{
			"test 502 upstream upstream_error: The model server answered HTTP 500. in≈ out≈",
		}},
		"breaks": {events("wait", hello, "abort"), goodCall, []string{
			"test 502 upstream upstream_error: The model server closed the stream before the " +
				"answer was complete. Try again. in≈ out≈",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(t)
				home := g.connector("default", "home", map[string]http.Handler{"ollama": server{t, tt.speak, tt.tool}})
				g.deployment("public", home, "", "upstream-model")
				want[manage.TestResult](g, 200, "POST", "/deployments/public/test", "{}")
				synctest.Wait()
				var got []string
				for _, r := range g.activity.Recent("default") {
					in, out := fmt.Sprint(r.InputTokens), fmt.Sprint(r.OutputTokens)
					if r.Estimated {
						in, out = "≈", "≈"
					}
					if r.ErrorCode != "" {
						r.ErrorCode += ": "
					}
					got = append(got, fmt.Sprintf("%s %d %s %s%s in%s out%s", r.Operation, r.Status, r.ErrorClass, r.ErrorCode,
						r.Error, in, out))
					if r.KeyID != "" || r.Deployment != "public" || r.Connector == "" || r.Estimated && r.InputTokens == 0 ||
						strings.Contains(fmt.Sprint(r), "quartz") {
						t.Errorf("%+v", r)
					}
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("%q", got)
				}
				if list := want[manage.Checklist](g, 200, "GET", "/checklist", ""); list.Request {
					t.Error("a test counts as the first request")
				}
				if sum := sumOf(usageOf(t, g.service, manage.Usage{})); sum.Requests != int64(len(got)) {
					t.Errorf("%+v", sum)
				}
			})
		})
	}
}
