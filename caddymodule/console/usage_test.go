package console

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
)

// record adds a request of some days ago to the activity.
func (g *gateway) record(ago int, r activity.Request) {
	r.Time = time.Now().UTC().AddDate(0, 0, -ago)
	g.log.Record(store.DefaultAccount, r)
}

func TestUsagePage(t *testing.T) {
	g := newGateway(t)
	has(t, g.page("/console/usage"), "No requests in this time")
	ada, _ := g.store.FindUser("ada")
	owned, _, err := g.store.CreateKey(t.Context(),
		store.DefaultAccount, store.KeyFields{Name: "laptop", Scope: "*", Owner: ada.ID})
	if err != nil {
		t.Fatal(err)
	}
	g.record(0, activity.Request{
		KeyID: owned.ID, KeyName: "laptop", Deployment: "qwen3", InputTokens: 12000,
		OutputTokens: 300, BusyMillis: 3000, FirstTokenMillis: 210, Estimated: true,
	})
	g.record(3, activity.Request{
		KeyID: "key_gone", KeyName: mean, Deployment: mean, InputTokens: 70,
		ErrorClass: activity.UpstreamError,
	})
	g.record(3, activity.Request{KeyID: "key_gone", KeyName: mean, Deployment: mean, ErrorClass: activity.CallerError})
	g.record(60, activity.Request{Deployment: "old", OutputTokens: 5})

	page := g.page("/console/usage")
	plain(t, page)
	has(t, mainOf(page), ">Models<", "<dt>Requests</dt><dd>3</dd>", "<dt>Failed</dt><dd>1</dd>", "≈ 12.1k",
		"≈ 12\u202f000", "210 ms", `<dd>100</dd>`, "did not count 12\u202f300 of the tokens",
		`aria-current="true">30 days`, `aria-current="true">Model`)
	lacks(t, mainOf(page), ">old<")
	has(t, mainOf(g.page("/console/usage?range=90d&by=key")), ">Console<", ">laptop<", ">Keys<")
	has(t, mainOf(g.page("/console/usage?by=user")), ">ada<", ">No owner<", ">Persons<")
	hours := mainOf(g.page("/console/usage?range=24h&by=day"))
	has(t, hours, ">Hours<", "<dt>Requests</dt><dd>1</dd>", time.Now().UTC().Format("2 Jan, 15:00"))
	has(t, mainOf(g.page("/console/usage?range=nonsense&by=nonsense")), `aria-current="true">30 days`,
		`aria-current="true">Model`)
	found := mainOf(g.page("/console/usage?range=90d&by=key&q=laptop"))
	has(t, found, `name="range" value="90d"`, `name="by" value="key"`)
	lacks(t, found, `data-label="Key">Console`)
}

// The files that the page offers are those of its query.
func TestUsageFiles(t *testing.T) {
	g := newGateway(t)
	g.record(1, activity.Request{KeyID: "key_1", KeyName: "laptop", Deployment: "qwen3", InputTokens: 7})
	page := mainOf(g.page("/console/usage?range=7d&by=key"))
	for _, format := range []string{"csv", "json"} {
		want := `/console/api/usage?by=day%2Ckey&amp;`
		if format == "csv" {
			want += "format=csv&amp;"
		}
		_, rest, ok := strings.Cut(page, `href="`+want)
		query, _, _ := strings.Cut(rest, `"`)
		if !ok {
			t.Fatalf("no link to %s: %s", format, page)
		}
		has(t, g.page(strings.ReplaceAll(want+query, "&amp;", "&")), "key_1", "laptop",
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
	has(t, drawing, `role="img"`, "Tokens, ", "at most 1.3k", "key 9: 1\u202f000 tokens")
	if n := strings.Count(drawing, "<rect"); n != 10 {
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
	if c.Top != 10 || c.Half() != 5 || c.Width() != 3 || c.Label != "T, one to three: at most 7.5, one" {
		t.Errorf("%+v", c)
	}
	want := []block{
		{"series-0", "one, a: 3 x", .1, 70, .8, 30},
		{"series-1", "one, b: 4.5 x", .1, 25, .8, 45},
		{"series-0", "three, a: 1 x", 2.1, 90, .8, 10},
	}
	if got := c.Blocks(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, not %v", got, want)
	}
	for n, want := range map[float64]float64{0: 1, 1: 1, 1.1: 2, 7: 10, 99: 100, 101: 200, .03: .05, 5e9: 5e9} {
		if got := roundUp(n); got < want*.999 || got > want*1.001 {
			t.Errorf("roundUp(%v) = %v", n, got)
		}
	}
	for n, want := range map[float64]string{0: "0", .5: "0.5", 999: "999", 1000: "1k", 1234: "1.23k", 2.5e6: "2.5M"} {
		if got := short(n); got != want {
			t.Errorf("short(%v) = %q", n, got)
		}
	}
}
