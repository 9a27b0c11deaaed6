package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// failed records failures of a model, the last one some time ago, a second apart.
func (g *browser) failed(model, connector, code, server string, status, n int, ago time.Duration) {
	for i := range n {
		g.log.Record(store.DefaultAccount, activity.Request{
			ID: dialect.NewRequestID(), Time: time.Now().Add(-ago - time.Duration(i)*time.Second), KeyID: "key_1",
			KeyName: "laptop", Deployment: model, Connector: connector, Status: status, ErrorClass: activity.UpstreamError,
			ErrorCode: code, ServerError: server, Error: "It failed.",
		})
	}
}

// answered records answers of a model, the last one some time ago.
func (g *browser) answered(model string, n int, ago time.Duration) {
	for i := range n {
		g.log.Record(store.DefaultAccount, activity.Request{
			ID: dialect.NewRequestID(), Time: time.Now().Add(-ago - time.Duration(i)*time.Millisecond), KeyID: "key_1",
			Deployment: model, Status: http.StatusOK,
		})
	}
}

// afternoon moves the browser to a zone in which it is between noon and one o'clock, so that the last hours are today.
func (g *browser) afternoon() {
	name := fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12) // Etc/GMT-2 is two hours east of Greenwich
	g.cookies[zoneCookie] = &http.Cookie{Name: zoneCookie, Value: name}
}

// The list of failures counts them by kind, each of which is a filter, and joins equal ones that follow one another.
func TestKindsOfFailures(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.afternoon()
	g.failed("embed", "con_1", "upstream_unreachable", "", 502, 59, time.Minute)
	g.failed("llama", "con_1", "upstream_error", "out_of_memory", 500, 23, 3*time.Minute)
	g.failed("embed", "con_1", "upstream_error", "other", 200, 14, 30*time.Minute)
	g.failed("embed", "con_1", "upstream_unreachable", "", 502, 1, 2*time.Hour)
	g.answered("embed", 3, 0)
	page := mainOf(g.page("/console/activity?status=failed&since=24h"))
	kind := func(name string, n int) string {
		return fmt.Sprintf(`<a href="/console/activity?error=%s&amp;since=24h&amp;status=failed">%[1]s %d</a>`, name, n)
	}
	has(t, page, kind("upstream_unreachable", 60)+" · "+kind("out_of_memory", 23)+" · "+kind("stream_cut", 14),
		"<summary>59 like this since <time", "<summary>23 like this since <time", "<summary>14 like this since <time")
	if rows := strings.Count(page, `<td data-label="Status">`); rows != 4 {
		t.Errorf("%d rows, want 4", rows)
	}
	for query, want := range map[string][2]int{
		"status=failed&error=out_of_memory": {1, 23}, "error=stream_cut": {14, 14}, "error=upstream_unreachable": {50, 50},
		"status=failed&error=upstream_error": {0, 0}, "status=failed&sort=-time": {50, 50}, "sort=duration": {50, 50},
	} {
		page = mainOf(g.page("/console/activity?" + query))
		if rows := strings.Count(page, `<td data-label="Status">`); rows != want[0] {
			t.Errorf("%s: %d rows, want %d", query, rows, want[0])
		}
		if links := strings.Count(page, `href="/console/activity/req_`); links != want[1] {
			t.Errorf("%s: %d links, want %d", query, links, want[1])
		}
	}
	has(t, mainOf(g.page("/console/activity?sort=duration")),
		`aria-sort="descending"><a href="/console/activity?sort=-duration">Duration</a>`)
	has(t, mainOf(g.page("/console/activity?status=failed&error=stream_cut")),
		`<option value="stream_cut" selected>`, `<a href="/console/activity?status=failed">All</a>`)
	home := mainOf(g.page("/console/home"))
	has(t, home, "Failed: <a href=", "out_of_memory 23</a>", "stream_cut 14</a>", "</a>: out of memory",
		"</a>: It failed.")
	lacks(t, home, "</a>: upstream_unreachable", "</a>: stream_cut")
}

// Home shows when a cause has failed requests, once for all models. It is not red when it is over, and gone after an
// hour.
func TestOutageIsOver(t *testing.T) {
	t.Parallel()
	const red, amber = `notice notice-bad"><a href="/console/activity?`, `notice"><a href="/console/activity?`
	for name, tt := range map[string]struct {
		ago      time.Duration // of the last failure
		answered int           // then
		since    time.Duration // of the last answer
		want     string        // before the link
	}{
		"it goes on":                {time.Minute, 0, 0, red},
		"a few answers":             {time.Minute, 19, 0, red},
		"twenty answers":            {time.Minute, 20, 0, amber},
		"no failure in ten minutes": {11 * time.Minute, 2, time.Minute, amber},
		"no request since":          {11 * time.Minute, 0, 0, red},
		"an hour ago":               {61 * time.Minute, 1, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			g.failed("embed", "con_1", "upstream_unreachable", "", 502, 19, tt.ago)
			g.failed("llama", "con_1", "upstream_unreachable", "", 502, 4, tt.ago+time.Minute)
			g.failed("llama", "con_1", "upstream_error", "", 502, 1, tt.ago+time.Minute)
			g.answered("embed", 30, tt.ago+2*time.Minute)
			g.answered("embed", tt.answered, tt.since)
			main := mainOf(g.page("/console/home"))
			if tt.want == "" {
				lacks(t, main, "requests for embed")
				return
			}
			has(t, main, tt.want+"connector=con_1&amp;error=upstream_unreachable&amp;since=",
				"23 requests for embed, llama failed")
			if strings.Contains(main, "failed, none since</a>: It failed.") != (tt.want == amber) ||
				strings.Count(main, "requests for ") != 1 {
				t.Errorf("%s", main)
			}
		})
	}
}

// Home does not search for failures that the usage does not have: this visit has no gateway to search.
func TestNoFailures(t *testing.T) {
	use := &dayUsage{sums: []manage.UsageSum{{Usage: store.Usage{Requests: 9, CallerErrors: 2}}}}
	if found := new(visit).failures(use); found != nil {
		t.Error(found)
	}
}
