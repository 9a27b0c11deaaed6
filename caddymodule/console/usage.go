package console

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// usageTab shows who uses what, and how fast models answer.
var usageTab = &tab{path: "usage", name: "usage", title: "Usage", data: usageData}

// span is a range of time of the page.
type span struct {
	name, title string
	hours       bool // the periods are hours, not days
	periods     int
}

var spans = []span{
	{"24h", "24 hours", true, 24},
	{"7d", "7 days", false, 7},
	{"30d", "30 days", false, 30},
	{"90d", "90 days", false, 90},
}

// grouping selects what each row of the page sums up.
type grouping struct {
	name, title string
	group       func(manage.UsageSum) usageGroup
}

// usageGroup identifies a row of the page.
type usageGroup struct{ ID, Name string }

var groupings = []grouping{
	{"model", "Model", func(u manage.UsageSum) usageGroup { return usageGroup{u.Model, cmp.Or(u.Model, "No model")} }},
	{"key", "Key", func(u manage.UsageSum) usageGroup {
		return usageGroup{u.KeyID, cmp.Or(u.KeyName, u.KeyID, "Console")}
	}},
	{"user", "Person", func(u manage.UsageSum) usageGroup { return usageGroup{u.UserID, cmp.Or(u.UserName, "No owner")} }},
	{"day", "Day", nil},
}

// usageRow is a row of the table.
type usageRow struct {
	Name string
	store.Usage
}

// FirstToken returns the mean time to the first token; 0 for none.
func (r usageRow) FirstToken() time.Duration {
	return time.Duration(r.FirstTokenMillis/max(1, r.FirstTokens)) * time.Millisecond
}

// Speed returns the output tokens in a second of a model's work.
func (r usageRow) Speed() float64 {
	return 1000 * float64(r.OutputTokens) / float64(max(1, r.BusyMillis))
}

// Outages returns the number of requests that failed without a fault of their clients.
func (r usageRow) Outages() int64 { return r.GatewayErrors + r.UpstreamErrors }

// choice is a link to another view of a page.
type choice struct {
	Title, URL string
	Current    bool
}

// choiceList has the values of a parameter of a page.
type choiceList struct {
	Label string
	Links []choice
}

type usagePage struct {
	Spans, Groupings choiceList
	Grouping         string // title of the rows
	Sum              usageRow
	Charts           []chart
	List             listing[usageRow]
	CSV, JSON        string // URLs of the same usage
}

func usageData(v *visit) any {
	query := v.r.URL.Query()
	during, by := spans[2], groupings[0]
	for _, s := range spans {
		if s.name == query.Get("range") {
			during = s
		}
	}
	for _, g := range groupings {
		if g.name == query.Get("by") {
			by = g
		}
	}
	p := &usagePage{Spans: choiceList{Label: "Range"}, Groupings: choiceList{Label: "By"}}
	for _, s := range spans {
		p.Spans.Links = append(p.Spans.Links, usageChoice(s, by, s.title, s.name == during.name))
	}
	for _, g := range groupings {
		title, current := g.title, g.name == by.name
		if g.group == nil && during.hours {
			title = "Hour"
		}
		if current {
			p.Grouping = title
		}
		p.Groupings.Links = append(p.Groupings.Links, usageChoice(during, g, title, current))
	}
	request, periods := during.request(by, v.Now().UTC())
	sums := load(v, func(ctx context.Context) ([]manage.UsageSum, error) { return v.Manage.Usage(ctx, request) })
	p.sum(v, by, periods, sums)
	to := url.Values{"from": {request.From}, "to": {request.To}, "by": {request.By}}
	p.JSON = "/console/api/usage?" + to.Encode()
	to.Set("format", "csv")
	p.CSV = "/console/api/usage?" + to.Encode()
	return p
}

func usageChoice(s span, g grouping, title string, current bool) choice {
	return choice{title, "/console/usage?" + url.Values{"range": {s.name}, "by": {g.name}}.Encode(), current}
}

// period is a bar of the charts: an hour or a day. full is its name in the table.
type period struct{ id, name, full string }

// request returns the query for a range, and its periods, the oldest first.
func (s span) request(by grouping, now time.Time) (manage.Usage, []period) {
	layout, name, full, size, column := time.DateOnly, "2 Jan", time.DateOnly, 24*time.Hour, "day"
	if s.hours {
		layout, name, full, size, column = store.HourOnly, "15:00", "2 Jan, 15:00", time.Hour, "hour"
	}
	periods := make([]period, s.periods)
	for i := range periods {
		at := now.Add(size * time.Duration(i+1-s.periods))
		periods[i] = period{at.Format(layout), at.Format(name), at.Format(full)}
	}
	request := manage.Usage{From: periods[0].id, To: periods[len(periods)-1].id, By: column}
	if by.group != nil {
		request.By += "," + by.name
	}
	return request, periods
}

// sum fills the page with the sums of a query.
func (p *usagePage) sum(v *visit, by grouping, periods []period, sums []manage.UsageSum) {
	total := make(map[string]store.Usage)            // by period
	rows := make(map[usageGroup]*usageRow)           // of the table
	each := make(map[string]map[usageGroup]usageRow) // by period
	for _, u := range sums {
		at := cmp.Or(u.Hour, u.Day)
		sum := total[at]
		sum.Add(u.Usage)
		total[at] = sum
		p.Sum.Add(u.Usage)
		if by.group == nil {
			continue
		}
		g := by.group(u)
		if rows[g] == nil {
			rows[g] = &usageRow{Name: g.Name}
		}
		rows[g].Add(u.Usage)
		if each[at] == nil {
			each[at] = make(map[usageGroup]usageRow)
		}
		each[at][g] = usageRow{g.Name, u.Usage}
	}
	groups := make([]usageGroup, 0, len(rows))
	for g := range rows {
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b usageGroup) int { // the busiest first
		x, y := rows[a], rows[b]
		return cmp.Or(cmp.Compare(y.Tokens(), x.Tokens()), cmp.Compare(y.Requests, x.Requests), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.ID, b.ID))
	})
	var table []usageRow
	for _, g := range groups {
		table = append(table, *rows[g])
	}
	if by.group == nil {
		for _, at := range slices.Backward(periods) {
			if u := total[at.id]; u.Requests > 0 {
				table = append(table, usageRow{at.full, u})
			}
		}
	}
	p.List = list(v, "usage", table, func(r usageRow) string { return r.Name }, "range", "by")
	p.Charts = draw(periods, groups, each, total)
}

// Tokens returns all tokens.
func (r usageRow) Tokens() int64 { return r.InputTokens + r.OutputTokens }

// draw returns the charts. Tokens and requests are stacked by the busiest groups, if there are
// any.
func draw(
	periods []period, groups []usageGroup, each map[string]map[usageGroup]usageRow, total map[string]store.Usage,
) []chart {
	stacked := func(value func(usageRow) float64) []bar {
		bars := make([]bar, len(periods))
		for i, at := range periods {
			bars[i].Name = at.name
			values := make([]float64, min(len(groups), maxSeries+1))
			for n, g := range groups {
				values[min(n, maxSeries)] += value(each[at.id][g])
			}
			bars[i].Values = values
		}
		return bars
	}
	plain := func(values ...func(usageRow) float64) []bar {
		bars := make([]bar, len(periods))
		for i, at := range periods {
			bars[i].Name = at.name
			for _, value := range values {
				bars[i].Values = append(bars[i].Values, value(usageRow{Usage: total[at.id]}))
			}
		}
		return bars
	}
	names := make([]string, min(len(groups), maxSeries+1))
	for i := range names {
		names[i] = groups[i].Name
	}
	if len(groups) > maxSeries {
		names[maxSeries] = "Others"
	}
	tokens := newChart("Tokens", "tokens", names, stacked(func(r usageRow) float64 { return float64(r.Tokens()) }))
	requests := newChart("Requests", "requests", names, stacked(func(r usageRow) float64 { return float64(r.Requests) }))
	if len(groups) == 0 {
		tokens = newChart("Tokens", "tokens", []string{"Tokens in", "Tokens out"}, plain(
			func(r usageRow) float64 { return float64(r.InputTokens) },
			func(r usageRow) float64 { return float64(r.OutputTokens) }))
		requests = newChart("Requests", "requests", []string{"Answered", "Refused or client's fault", "Failed"}, plain(
			func(r usageRow) float64 { return float64(r.Requests - r.Errors()) },
			func(r usageRow) float64 { return float64(r.CallerErrors + r.PolicyErrors) },
			func(r usageRow) float64 { return float64(r.Outages()) }))
		requests.Series[2].Class = "series-bad"
	}
	return []chart{
		tokens, requests,
		newChart("Mean time to first token, in seconds", "s", []string{""},
			plain(func(r usageRow) float64 { return r.FirstToken().Seconds() })),
		newChart("Tokens per second", "tokens/s", []string{""}, plain(usageRow.Speed)),
	}
}
