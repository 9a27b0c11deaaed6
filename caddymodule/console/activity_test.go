package console

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
)

func TestActivity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		has(t, mainOf(g.page("/console/activity")), "No requests yet", `href="/console/start#request-title"`)
		c := g.connector("gpu-box")
		now := time.Now().UTC()
		add := func(ago time.Duration, r activity.Request) {
			r.Time = now.Add(-ago)
			g.log.Record(store.DefaultAccount, r)
		}
		add(0, activity.Request{
			ID: "req_1", KeyID: "key_1", KeyName: "laptop", Deployment: "qwen3", Connector: c.ID, Dialect: "messages",
			Model: "claude-haiku", Operation: "messages",
			Status: 200, Streamed: true, WaitMillis: 1200, DurationMillis: 2340, FirstTokenMillis: 210, InputTokens: 12934,
			OutputTokens: 312,
		})
		add(0, activity.Request{
			ID: "req_2", KeyName: mean, Model: mean, Dialect: "chat", Status: 404, ErrorClass: activity.CallerError,
			ErrorCode: "model_not_found", Error: "The model `…` does not exist.", DurationMillis: 1,
		})
		add(2*time.Hour, activity.Request{
			ID: "req_3", KeyID: "key_1", KeyName: "laptop", Deployment: "qwen3",
			Connector: "con_gone", Dialect: "chat", Status: 502, ErrorClass: activity.UpstreamError,
			ErrorCode: "upstream_unreachable",
		})
		add(48*time.Hour, activity.Request{
			ID: "req_4", Deployment: "qwen3", Operation: activity.Test, Status: 200,
			Estimated: true, InputTokens: 9,
		})
		for range 30 {
			g.log.Refuse(store.DefaultAccount,
				activity.Request{
					ID: "req_5", Time: now, KeyID: "key_2", KeyName: "old", Dialect: "chat", Status: 401,
					ErrorClass: activity.PolicyError, ErrorCode: "invalid_api_key", Error: "This API key has been revoked.",
				})
		}
		has(t, g.page("/console/activity?model=qwen3&status=ok&q=+lap"),
			`href="/console/api/activity?format=csv&amp;model=qwen3&amp;search=lap&amp;status=ok" download`)
		page := g.page("/console/activity")
		plain(t, page)
		main := mainOf(page)
		has(t, main, "laptop", "qwen3", ">gpu-box</a>", "asked for claude-haiku", ">con_gone</a>", "messages",
			"1.2 s", "2.3 s",
			"210 ms",
			"12\u202f934", "≈ 9",
			`badge-ok">200`, `badge">404`, `badge-bad">502`, `badge">401`, `badge">test`,
			"model_not_found</code> The model <code>…</code> does not exist.",
			now.Format(">15:04:05<"), now.Add(-48*time.Hour).Format(">2 Jan, 15:04:05<"), "30 times within a minute",
			`<option value="console">`, "The last requests")
		for query, want := range map[string][]string{
			"q=LAPTOP": {"req_1", "req_3"}, "q=req_3": {"req_3"}, "q=not+exist": {"req_2"}, "connector=gpu-box": {"req_1"},
			"q=502": {"req_3"}, "user=nobody": nil, "until=1999-01-01T00:00:00Z": nil, "q=nothing": nil,
			"key=key_1":   {"req_1", "req_3"},
			"key=console": {"req_4"}, "model=qwen3&since=24h": {"req_1", "req_3"}, "since=1h": {"req_1", "req_2", "req_5"},
			"since=7d&status=ok": {"req_1", "req_4"},
			"status=failed":      {"req_3"}, "status=client": {"req_2"}, "status=refused": {"req_5"},
			"status=failed&key=console": nil,
		} {
			found := mainOf(g.page("/console/activity?" + query))
			for _, id := range []string{"req_1", "req_2", "req_3", "req_4", "req_5"} {
				if got := strings.Contains(found, "/console/activity/"+id); got != slices.Contains(want, id) {
					t.Errorf("%s has %s: %t", query, id, got)
				}
			}
			if want == nil {
				has(t, found, "No request matches")
			}
		}
		g.refused(g.get("/console/activity?since=junk"), http.StatusBadRequest, "")
	})
}

// Each request has a page.
func TestRequestPage(t *testing.T) {
	g := newGateway(t)
	g.record(0, activity.Request{
		ID: "req_1", KeyID: "key_1", KeyName: mean, Model: mean, Dialect: "chat", Operation: "chat/completions", Status: 502,
		ErrorClass: activity.UpstreamError,
		ErrorCode:  "upstream_error", Error: "The model server answered `500`.", BusyMillis: 2000, InputTokens: 12,
		CachedTokens: 4, OutputTokens: 3, Estimated: true, Dropped: "tools.2 (web_search)",
	})
	page := g.page("/console/activity/req_1")
	plain(t, page)
	has(t, mainOf(page), "req_1", "upstream_error</code>", "answered <code>500</code>",
		"failed in the connector or the model server", "Model asked for", `href="/console/keys/key_1"`,
		"≈ 12", "<dt>cached</dt>", "Model time", "<dt>Dropped</dt><dd>tools.2 (web_search)")
	g.refused(g.get("/console/activity/req_gone"), http.StatusNotFound, "")
	g.log.Refuse(store.DefaultAccount,
		activity.Request{
			ID: "req_2", Time: time.Now(), Status: 401, ErrorClass: activity.PolicyError,
			Error: "Unknown API key.",
		})
	has(t, mainOf(g.page("/console/activity/req_2")), "<dt>Key</dt><dd>unknown", "refused by the gateway")
}

// Each of several equal refusals is found by its id: in the list, and on its page.
func TestRefusalsByID(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	for _, id := range []string{"req_1", "req_2", "req_3"} {
		g.log.Refuse(store.DefaultAccount, activity.Request{
			ID: id, Time: time.Now(), KeyID: "key_1", KeyName: "laptop", Status: 404, ErrorClass: activity.PolicyError,
			ErrorCode: "model_not_found", Error: "The model does not exist.",
		})
	}
	for _, id := range []string{"req_1", "req_2", "req_3"} {
		has(t, mainOf(g.page("/console/activity?q="+id)), "model_not_found", "laptop")
		has(t, mainOf(g.page("/console/activity/"+id)), "model_not_found", "refused by the gateway")
	}
	has(t, g.page("/console/activity?q=req_4"), "No request matches", "only the last 64 ids are kept")
	g.refused(g.get("/console/activity/req_4"), http.StatusNotFound, "only the last 64 ids")
}

// The page of a request has the reason that the client does not get, and what to do.
func TestReasonOfRequest(t *testing.T) {
	g := newGateway(t)
	g.record(0, activity.Request{
		ID: "req_scope", KeyID: "key_1", KeyName: mean, Deployment: "llama3.2", Status: 404,
		ErrorClass: activity.PolicyError, ErrorCode: "model_not_found", Error: "The model `…` does not exist.",
		Reason: "`llama3.2` is outside the key's scope `qwen3*`.",
	})
	page := g.page("/console/activity/req_scope")
	plain(t, page)
	has(t, mainOf(page), "<code>llama3.2</code> is outside the key&#39;s scope <code>qwen3*</code>.", "What to do:",
		"The client got: The model <code>…</code> does not exist.", `<a href="/console/keys/key_1">Change the key</a>`,
		"refused by the gateway")
	lacks(t, mainOf(page), "notice-bad", "server’s message")
	g.record(0, activity.Request{
		ID: "req_memory", KeyID: "key_1", Status: 502, ErrorClass: activity.UpstreamError, ErrorCode: "upstream_error",
		Error: "The model server answered HTTP 500.", ServerError: "out_of_memory",
	})
	main := mainOf(g.page("/console/activity/req_memory"))
	has(t, main, "notice-bad", "Cause: <code>out_of_memory</code>. The client saw the server’s message.",
		"ran out of memory")
	lacks(t, main, "Change the key")
	g.record(0, activity.Request{
		ID: "req_other", Status: 502, ErrorClass: activity.UpstreamError, ErrorCode: "upstream_error", ServerError: "other",
	})
	has(t, mainOf(g.page("/console/activity/req_other")), "The client saw the server’s message.")
	g.record(0, activity.Request{ID: "req_ok", Status: 200})
	lacks(t, mainOf(g.page("/console/activity/req_ok")), "What to do", "class=\"notice")
}

func TestNumbers(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "", time.Microsecond: "<1 ms", 2345 * time.Microsecond: "2.3 ms", 21 * time.Millisecond: "21 ms",
		1500 * time.Millisecond: "1.5 s", 99 * time.Second: "99.0 s", 125 * time.Second: "2 min 5 s",
	} {
		if got := seconds(d); got != want {
			t.Errorf("seconds(%v) = %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1\u202f000", 1234567: "1\u202f234\u202f567"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}

// A page links to the next one, with the same filter.
func TestPagesOfActivity(t *testing.T) {
	g := newGateway(t)
	for i := range 120 {
		g.log.Record(store.DefaultAccount, activity.Request{
			ID: fmt.Sprintf("req_%03d", i), Time: time.Now().Add(-time.Duration(i) * time.Second),
			Deployment: "qwen3", Status: 200,
		})
	}
	next := regexp.MustCompile(`href="(/console/activity\?[^"]*)" rel="next"`)
	path := "/console/activity?model=qwen3&key="
	var pages []int
	for path != "" {
		main := mainOf(g.page(path))
		pages = append(pages, strings.Count(main, `href="/console/activity/req_`))
		if strings.Contains(main, ">Newest<") != (len(pages) > 1) {
			t.Errorf("page %d: %t", len(pages), len(pages) > 1)
		}
		path = ""
		if found := next.FindStringSubmatch(main); found != nil {
			path = html.UnescapeString(found[1])
		}
	}
	if !slices.Equal(pages, []int{50, 50, 20}) {
		t.Errorf("pages: %v", pages)
	}
}

// The type of a request is its operation, and its page shows the request line.
func TestRequestType(t *testing.T) {
	g := newGateway(t)
	for operation, want := range map[string][2]string{
		"messages":            {"<span>messages", "<dd>POST /v1/messages, streamed</dd>"},
		"chat/completions":    {"<span>chat", "<dd>POST /v1/chat/completions, streamed</dd>"},
		"responses/get":       {"<span>responses/get", "<dd>GET /v1/responses/{id}, streamed</dd>"},
		"paths":               {"<span>paths", "<dd>GET /v1, streamed</dd>"},
		"messages/safeguards": {"<span>messages/safeguards", "<dd>messages/safeguards, streamed</dd>"},
		"":                    {"<span>other", "<dd>other, streamed</dd>"}, // of an unknown path
	} {
		id := "req_" + strings.ReplaceAll(operation, "/", "")
		g.record(0, activity.Request{ID: id, Dialect: "chat", Operation: operation, Status: 200, Streamed: true})
		has(t, mainOf(g.page("/console/activity?q="+id)), want[0])
		has(t, mainOf(g.page("/console/activity/"+id)), want[1])
	}
}
