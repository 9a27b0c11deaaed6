package console

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
)

// record adds a request of some days ago to the activity.
func (g *browser) record(ago int, r activity.Request) {
	r.Time = time.Now().UTC().AddDate(0, 0, -ago)
	r.ID = cmp.Or(r.ID, dialect.NewRequestID())
	g.log.Record(store.DefaultAccount, r)
}

func TestUsagePage(t *testing.T) {
	g := newGateway(t)
	has(t, g.page("/console/usage"), "No requests in this period")
	ada, _ := g.store.FindUser("ada")
	owned, _, err := g.store.CreateKey(t.Context(),
		store.DefaultAccount, store.KeyFields{Name: "laptop", Scope: "*", Owner: ada.ID})
	must(t, err)
	g.record(0, activity.Request{
		KeyID: owned.ID, KeyName: "laptop", Deployment: "qwen3", InputTokens: 12000,
		OutputTokens: 300, BusyMillis: 3000, WaitMillis: 5000, FirstTokenMillis: 210, TokensPerSecond: 100, Estimated: true,
	})
	g.record(0, activity.Request{
		KeyID: owned.ID, KeyName: "laptop", Deployment: "qwen3", ErrorClass: activity.PolicyError,
	})
	g.record(3, activity.Request{
		KeyID: "key_gone", KeyName: mean, Deployment: mean, InputTokens: 70,
		ErrorClass: activity.UpstreamError,
	})
	g.record(3, activity.Request{KeyID: "key_gone", KeyName: mean, Deployment: mean, ErrorClass: activity.CallerError})
	g.record(60, activity.Request{Deployment: "old", OutputTokens: 5})

	page := g.page("/console/usage?range=30d")
	plain(t, page)
	has(t, mainOf(page), ">Models<", ">4</a>", ">1</a>", "≈ 12.1k",
		"≈ 12\u202f000", "<dd>192 ms<small>p95 192 ms</small>", "6.1 s", `<dd>99.1<small>slowest 5% 99.1</small></dd>`,
		"≈ includes 12.3k estimated tokens: their servers report no usage.",
		`aria-current="true">30 days`, `aria-current="true">Model`)
	lacks(t, mainOf(page), ">old<")
	season := mainOf(g.page("/console/usage?range=90d&by=key"))
	has(t, season, ">Console<", ">laptop<", ">Keys<", ">5<")
	has(t, season, "/console/activity?since=")
	has(t, mainOf(g.page("/console/usage?by=user")), ">ada<", ">No owner<", ">People<")
	hours := mainOf(g.page("/console/usage?range=24h&by=day"))
	has(t, hours, ">Hours<", ">2</a>", time.Now().UTC().Format("2 Jan, 15:00"))
	has(t, mainOf(g.page("/console/usage?range=nonsense&by=nonsense")), `aria-current="true">30 days`,
		`aria-current="true">Model`)
	found := mainOf(g.page("/console/usage?range=90d&by=key&q=laptop"))
	has(t, found, `name="range" value="90d"`, `name="by" value="key"`)
	lacks(t, found, `data-label="Key"><a href="/console/activity?key=console&amp;`)
}

// Each name leads to its page, and each number to the list of the requests that it counts.
func TestUsageLinks(t *testing.T) {
	g := newGateway(t)
	ada, _ := g.store.FindUser("ada")
	k, _, err := g.store.CreateKey(t.Context(),
		store.DefaultAccount, store.KeyFields{Name: "laptop", Scope: "*", Owner: ada.ID})
	must(t, err)
	for _, class := range []string{"", activity.GatewayError, activity.PolicyError} {
		g.record(0, activity.Request{KeyID: k.ID, KeyName: "laptop", Deployment: "qwen3", ErrorClass: class})
	}
	g.record(0, activity.Request{KeyID: "key_gone", KeyName: "gone", Deployment: "removed"})
	g.record(0, activity.Request{Operation: activity.Test})
	today := time.Now().UTC().Truncate(24 * time.Hour)
	at := func(t time.Time) string { return url.QueryEscape(t.Format(time.RFC3339)) }
	since := at(today.AddDate(0, 0, -29))
	for query, want := range map[string][]string{
		"by=model": {
			`<a href="/console/models/show?name=qwen3">qwen3</a>`,
			`<a href="/console/activity?model=qwen3&amp;since=` + since + `">3</a>`,
			`<a href="/console/activity?model=qwen3&amp;since=` + since + `&amp;status=failed">1</a>`,
			`<a href="/console/activity?model=qwen3&amp;since=` + since + `&amp;status=refused">1</a>`,
			`<a href="/console/activity?model=removed&amp;since=` + since + `">1</a>`,
			`data-label="Model" class="fill" title="No model">No model<`,
			`<dd><a href="/console/activity?since=` + since + `&amp;status=refused">1</a></dd>`,
		},
		"by=key": {
			`<a href="/console/keys/` + k.ID + `">laptop</a>`,
			`<a href="/console/activity?key=console&amp;since=` + since + `">Console</a>`,
			`<a href="/console/activity?key=key_gone&amp;since=` + since + `">1</a>`,
		},
		"by=user": {
			`<a href="/console/usage?by=key&amp;range=30d&amp;user=` + ada.ID + `">ada</a>`,
			`data-label="Person" class="fill" title="No owner">No owner<`,
			`<a href="/console/activity?since=` + since + `&amp;user=` + ada.ID + `">3</a>`,
		},
		"by=day": {`<a href="/console/activity?since=` + at(today) + `&amp;until=` + at(today.AddDate(0, 0, 1)) + `">5</a>`},
		"by=key&user=" + ada.ID: {
			`Person ada only. <a href="/console/usage?by=key&amp;range=30d">Show all</a>`, ">laptop<",
			"&amp;user=" + ada.ID + `">90 days`,
			`href="/console/activity?key=` + k.ID + `&amp;since=` + since + `&amp;user=` + ada.ID + `">3</a>`,
		},
		"by=model&key=" + k.ID + "&model=qwen3": {
			"Key laptop only.", "Model qwen3 only.", `?by=model&amp;key=` + k.ID + `&amp;range=30d">`,
		},
		"key=console": {"Key Console only.", `data-label="Model" class="fill" title="No model">No model<`},
		"model=none":  {"Model none only.", "No requests in this period"},
	} {
		page := mainOf(g.page("/console/usage?range=30d&" + query))
		has(t, page, want...)
		if strings.Contains(query, "user=") {
			lacks(t, page, ">gone<", ">Console<")
		}
	}
}

// While all usage is younger than three days, the page shows 24 hours.
func TestYoungUsage(t *testing.T) {
	g := newGateway(t)
	g.record(2, activity.Request{Deployment: "m"})
	has(t, mainOf(g.page("/console/usage")), `aria-current="true">24 hours`)
	has(t, mainOf(g.page("/console/usage?range=7d")), `aria-current="true">7 days`)
	g.record(3, activity.Request{Deployment: "m"})
	has(t, mainOf(g.page("/console/usage")), `aria-current="true">30 days`)
}

// Hours are those of the browser's zone, and so is the day of the sums of today. Days are those of UTC.
func TestUsageInZone(t *testing.T) {
	g := newGateway(t)
	now := time.Now().UTC()
	for name, zone := range map[string]*time.Location{ // in one of the first two, the day is not that of UTC
		"Etc/GMT-14": time.FixedZone("", 14*3600), "Etc/GMT+12": time.FixedZone("", -12*3600), "../UTC": time.UTC,
		"": time.UTC,
	} {
		g.cookies["postern-zone"] = &http.Cookie{Name: "postern-zone", Value: name}
		hour := now.In(zone).Truncate(time.Hour)
		has(t, mainOf(g.page("/console/usage?range=24h&by=day")), "24 hours", "No requests")
		year, month, day := now.In(zone).Date()
		midnight := time.Date(year, month, day, 0, 0, 0, 0, zone).UTC()
		v := &visit{Console: g.console, r: httptest.NewRequest(http.MethodGet, "/", nil)}
		v.r.AddCookie(g.cookies["postern-zone"])
		if got := v.midnight(); !got.Equal(midnight) {
			t.Errorf("%s: the day began at %v, not %v", name, got, midnight)
		}
		_, periods := spans[0].query(grouping{}, v.localNow())
		if got := periods[23]; got.name != hour.Format("15:00") || got.id != now.Format(store.HourOnly) {
			t.Errorf("%s: %+v", name, got)
		}
		_, periods = spans[1].query(grouping{}, v.localNow())
		if got := periods[6]; got.name != now.Format("2 Jan") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The drawing of percentiles is a dot for p50, and a line from there to p95 of times and to the slowest 5% of speeds.
func TestSpreadCharts(t *testing.T) {
	g := newGateway(t)
	for i := range 20 {
		ms := 100.
		if i == 0 {
			ms = 3000
		}
		g.record(0, activity.Request{Deployment: "m", BusyMillis: 1, FirstTokenMillis: ms, TokensPerSecond: 20})
		g.record(0, activity.Request{Deployment: "m", BusyMillis: 1, FirstTokenMillis: 3000, TokensPerSecond: 200})
	}
	page := mainOf(g.page("/console/usage?range=7d"))
	day := time.Now().UTC().Format("2 Jan")
	has(t, page, day+", p50: 2.1 s<", day+", p95: 3.9 s<",
		day+", p50: 27.5 tokens/s<", day+", slowest 5%: 17.7 tokens/s<",
		`<th scope="row">`+day+`</th><td>2.1 s</td><td>3.9 s</td>`)
	c := newSpread("T", "s", "p95", []bar{{"one", []float64{2, 4}}, {"two", []float64{0, 0}}, {"three", []float64{3, 1}}})
	want := []block{
		{Class: "series-others line", Title: "one, p95: 4 s", Path: "M0.5 50V0"},
		{Class: "series-0 dot", Title: "one, p50: 2 s", Path: "M0.5 50h0"},
		{Class: "series-others line", Title: "three, p95: 1 s", Path: "M2.5 25V75"},
		{Class: "series-0 dot", Title: "three, p50: 3 s", Path: "M2.5 25h0"},
	}
	if got := c.Blocks(); fmt.Sprint(got) != fmt.Sprint(want) || c.Ticks[0].Value != 4 {
		t.Errorf("%v, not %v; %v", got, want, c.Ticks)
	}
}

// The files that the page offers are those of its query.
func TestUsageFiles(t *testing.T) {
	g := newGateway(t)
	g.record(1, activity.Request{KeyID: "key_1", KeyName: "laptop", Deployment: "qwen3", InputTokens: 7})
	page := mainOf(g.page("/console/usage?range=7d&by=key"))
	for _, format := range []string{"csv", "json"} {
		link := regexp.MustCompile(`href="(/console/api/usage\?[^"]*)"[a-z ]*>` + strings.ToUpper(format)).
			FindStringSubmatch(page)
		if link == nil {
			t.Fatalf("no link to %s: %s", format, page)
		}
		has(t, g.page(strings.ReplaceAll(link[1], "&amp;", "&")), "key_1", "laptop",
			time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly))
	}
}

// The blocks of a chart add up, stay inside it, and are well-formed.
func TestCharts(t *testing.T) {
	g := newGateway(t)
	for i := range 10 {
		g.record(i%7, activity.Request{
			KeyID: fmt.Sprint("key_", i), KeyName: fmt.Sprint("key ", i),
			InputTokens: 100 * (i + 1),
		})
	}
	page := mainOf(g.page("/console/usage?range=7d&by=key"))
	_, rest, _ := strings.Cut(page, "<svg")
	drawing, _, _ := strings.Cut(rest, "</svg>")
	has(t, drawing, `role="img"`, `aria-label="Tokens"`, "key 9: 1\u202f000 tokens")
	if n := strings.Count(drawing, "<title>"); n != 10 {
		t.Errorf("%d rectangles of 10 values", n)
	}
	if n := strings.Count(drawing, `class="series-others"`); n != 4 {
		t.Errorf("%d rectangles of the 4 others", n)
	}
	for d := xml.NewDecoder(strings.NewReader("<svg" + drawing + "</svg>")); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	c := newChart("T", "x", []string{"a", "b"},
		[]bar{{"one", []float64{3, 4.5}}, {"two", []float64{0, 0}}, {"three", []float64{1, 0}}})
	want := []block{
		{"series-0", "one, a: 3 x", "M0.1 62.5h0.8v37.5h-0.8z"},
		{"series-1", "one, b: 4.5 x", "M0.1 6.25h0.8v56.25h-0.8z"},
		{"series-0", "three, a: 1 x", "M2.1 87.5h0.8v12.5h-0.8z"},
	}
	if got := c.Blocks(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, not %v", got, want)
	}
	for peak, want := range map[float64]string{
		0: "1 0", 1: "1 0", 1.1: "1.5 1 0.5 0", 2: "2 1 0", 7: "8 6 4 2 0", 9: "10 5 0", 9.5: "10 7.5 5 2.5 0",
		101: "150 100 50 0", 2200: "3k 2k 1k 0", .03: "0.03 0.02 0.01 0", 5e9: "6G 4G 2G 0",
	} {
		var texts []string
		for _, tick := range ticks(peak, peak == math.Trunc(peak)) {
			texts = append(texts, short(tick.Value))
		}
		if got := strings.Join(texts, " "); got != want {
			t.Errorf("ticks to %v: %s, not %s", peak, got, want)
		}
	}
	for n, want := range map[int]int{7: 4, 24: 6, 30: 6, 90: 6} {
		c, shown := newChart("", "", []string{""}, make([]bar, n)), 0
		for i := range c.Bars {
			c.Bars[i].Name = "x"
		}
		for _, name := range c.Times() {
			shown += len(name)
		}
		if shown != want {
			t.Errorf("%d of %d times", shown, n)
		}
	}
	for n, want := range map[float64]string{0: "0", .5: "0.5", 999: "999", 1000: "1k", 1234: "1.23k", 2.5e6: "2.5M"} {
		if got := short(n); got != want {
			t.Errorf("short(%v) = %q", n, got)
		}
	}
}
