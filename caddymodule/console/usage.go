package console

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// usageTab shows who uses what, and how fast models answer.
var usageTab = &tab{path: "usage", name: "usage", title: "Usage", data: usageData}

// span is a time range of the page.
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
	page, none  string // the URL of a page, but for the id; what stands for no id in the activity
	group       func(manage.UsageSum) named
}

// named is an id with its name: of a row of the page, or of a choice in a form.
type named struct{ ID, Name string }

var groupings = []grouping{
	{"model", "Model", "/console/models/show?name=", "", func(u manage.UsageSum) named {
		return named{u.Model, cmp.Or(u.Model, "No model")}
	}},
	{"key", "Key", "/console/keys/", activity.ConsoleKey, func(u manage.UsageSum) named {
		return named{u.KeyID, cmp.Or(u.KeyName, u.KeyID, "Console")}
	}},
	{"user", "Person", "", "", func(u manage.UsageSum) named {
		return named{u.UserID, cmp.Or(u.UserName, "No owner")}
	}},
	{"day", "Day", "", "", nil},
}

// usageRow is a row of the table.
type usageRow struct {
	Name      string
	URL, List string // of its page, and of its requests; "": there is none
	store.Usage
}

// FirstToken returns the median time to the first token; 0 for none.
func (r usageRow) FirstToken() time.Duration {
	return time.Duration(r.Percentiles().FirstTokenP50 * float64(time.Millisecond))
}

// Speed returns the median of the tokens in a second after the first one; 0 for none.
func (r usageRow) Speed() float64 { return r.Percentiles().SpeedP50 }

// choice is a link to another view of a page.
type choice struct {
	Title, URL string
	Current    bool
}

// choiceList lists the values of a parameter of a page.
type choiceList struct {
	Label string
	Links []choice
}

type usagePage struct {
	Spans, Groupings choiceList
	Grouping         string   // title of the rows
	Filters          []choice // with the URLs of the page without them
	Sum              usageRow
	Charts           []chart
	List             listing[usageRow]
	CSV, JSON        string // URLs of the same usage
}

func usageData(v *visit) any {
	query := v.r.URL.Query()
	during, by := spans[2], groupings[0]
	if query.Get("range") == "" {
		during = youngSpan(v)
	}
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
	p, filter := &usagePage{Spans: choiceList{Label: "Range"}, Groupings: choiceList{Label: "By"}}, url.Values{}
	request, periods := during.query(by, v.localNow())
	for i, value := range []*string{&request.Model, &request.Key, &request.User} {
		column := groupings[i].name
		if *value = query.Get(column); *value != "" {
			filter.Set(column, *value)
			if column != by.name {
				request.By += "," + column // for its name
			}
		}
	}
	page := func(s span, g grouping) string {
		return "/console/usage" + queryWith(filter, "range", s.name, "by", g.name)
	}
	for _, s := range spans {
		p.Spans.Links = append(p.Spans.Links, choice{s.title, page(s, by), s.name == during.name})
	}
	sums := load(v, func(ctx context.Context) ([]manage.UsageSum, error) { return v.Manage.Usage(ctx, request) })
	for _, g := range groupings {
		title, current := g.title, g.name == by.name
		if g.group == nil && during.hours {
			title = "Hour"
		}
		if current {
			p.Grouping = title
		}
		p.Groupings.Links = append(p.Groupings.Links, choice{title, page(during, g), current})
		if value := filter.Get(g.name); value != "" {
			if len(sums) > 0 {
				value = g.group(sums[0]).Name
			}
			p.Filters = append(p.Filters, choice{title + " " + value, "/console/usage" +
				queryWith(filter, "range", during.name, "by", by.name, g.name, ""), true})
		}
	}
	p.sum(v, by, periods, sums, filter)
	p.JSON = "/console/api/usage" + queryWith(filter, "from", request.From, "to", request.To, "by", request.By)
	p.CSV = p.JSON + "&format=csv"
	return p
}

// youngSpan returns the range of the page until the user chooses one: 24 hours if all usage is younger than three days.
func youngSpan(v *visit) span {
	request, days := spans[2].query(grouping{}, v.localNow())
	request.To = days[len(days)-4].id
	older := load(v, func(ctx context.Context) ([]manage.UsageSum, error) { return v.Manage.Usage(ctx, request) })
	if len(older) > 0 {
		return spans[2]
	}
	return spans[0]
}

// queryWith returns a query with more parameters: names and values. Empty ones are left out.
func queryWith(query url.Values, more ...string) string {
	query = maps.Clone(query)
	for pair := range slices.Chunk(more, 2) {
		query.Set(pair[0], pair[1])
	}
	maps.DeleteFunc(query, func(_ string, values []string) bool { return values[0] == "" })
	return "?" + query.Encode()
}

// period is a bar of the charts: an hour or a day. full is its name in the table.
type period struct {
	id, name, full string
	from, to       time.Time
}

// query returns the query for a range, and its periods, the oldest first. Days are those of UTC; the names of hours are
// in the zone of now.
func (s span) query(by grouping, now time.Time) (manage.Usage, []period) {
	layout, name, full, size, column := time.DateOnly, "2 Jan", time.DateOnly, 24*time.Hour, "day"
	if s.hours {
		layout, name, full, size, column = store.HourOnly, "15:00", "2 Jan, 15:00", time.Hour, "hour"
	}
	periods := make([]period, s.periods)
	for i := range periods {
		at := now.UTC().Truncate(size).Add(size * time.Duration(i+1-s.periods))
		shown := at
		if s.hours {
			shown = at.In(now.Location())
		}
		periods[i] = period{at.Format(layout), shown.Format(name), shown.Format(full), at, at.Add(size)}
	}
	request := manage.Usage{From: periods[0].id, To: periods[len(periods)-1].id, By: column}
	if by.group != nil {
		request.By += "," + by.name
	}
	return request, periods
}

// sum fills the page with the sums of a query.
func (p *usagePage) sum(v *visit, by grouping, periods []period, sums []manage.UsageSum, filter url.Values) {
	total := byPeriod(sums)
	rows := make(map[named]*usageRow)                   // of the table
	perGroup := make(map[string]map[named]*store.Usage) // by period
	for i, u := range sums {
		id := cmp.Or(u.Hour, u.Day) // of the period
		p.Sum.Add(u.Usage)
		if by.group == nil {
			continue
		}
		g := by.group(u)
		if rows[g] == nil {
			rows[g] = &usageRow{Name: g.Name}
		}
		rows[g].Add(u.Usage)
		if perGroup[id] == nil {
			perGroup[id] = make(map[named]*store.Usage)
		}
		perGroup[id][g] = &sums[i].Usage
	}
	groups := slices.Collect(maps.Keys(rows))
	slices.SortFunc(groups, func(a, b named) int { // the busiest first
		x, y := rows[a], rows[b]
		return cmp.Or(cmp.Compare(y.Tokens(), x.Tokens()), cmp.Compare(y.Requests, x.Requests), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.ID, b.ID))
	})
	requests := func(from time.Time, more ...string) string {
		return "/console/activity" + queryWith(filter, append(more, "since", from.Format(time.RFC3339))...)
	}
	p.Sum.List = requests(periods[0].from)
	var table []usageRow
	for _, g := range groups {
		r := rows[g]
		if id := cmp.Or(g.ID, by.none); id != "" {
			r.List = requests(periods[0].from, by.name, id)
		}
		switch {
		case g.ID == "":
			r.URL = r.List
		case by.page != "":
			r.URL = by.page + url.QueryEscape(g.ID)
		default: // the keys of a person
			r.URL = "/console/usage" + queryWith(filter, "range", v.r.URL.Query().Get("range"), "by", "key", by.name, g.ID)
		}
		table = append(table, *r)
	}
	if by.group == nil {
		for _, period := range slices.Backward(periods) {
			if u := total[period.id]; u.Requests > 0 {
				list := requests(period.from, "until", period.to.Format(time.RFC3339))
				table = append(table, usageRow{period.full, list, list, u})
			}
		}
	}
	p.List = list(v, columns[usageRow]{
		name: "usage", text: func(r usageRow) string { return r.Name },
		kept: []string{"range", "by", "user", "key", "model"},
	}, table)
	p.Charts = usageCharts(periods, groups, perGroup, total)
}

// byPeriod adds up sums by hour or day.
func byPeriod(sums []manage.UsageSum) map[string]store.Usage {
	total := make(map[string]store.Usage)
	for _, u := range sums {
		sum := total[cmp.Or(u.Hour, u.Day)]
		sum.Add(u.Usage)
		total[cmp.Or(u.Hour, u.Day)] = sum
	}
	return total
}

// Tokens returns all tokens.
func (r usageRow) Tokens() int64 { return r.Sums().Tokens }

// bars returns a bar for each period. values returns the values of the period with an id.
func bars(periods []period, values func(id string) []float64) []bar {
	all := make([]bar, len(periods))
	for i, p := range periods {
		all[i] = bar{p.name, values(p.id)}
	}
	return all
}

// usageCharts returns the charts. Tokens and requests are stacked by the busiest groups, if there are
// any. perGroup and total contain the usage by period.
func usageCharts(
	periods []period, groups []named, perGroup map[string]map[named]*store.Usage, total map[string]store.Usage,
) []chart {
	all := func(values func(store.Usage) []float64) []bar {
		return bars(periods, func(id string) []float64 { return values(total[id]) })
	}
	charts := []chart{
		newChart("Tokens", "tokens", []string{"Tokens in", "Tokens out"}, all(func(u store.Usage) []float64 {
			return []float64{float64(u.InputTokens), float64(u.OutputTokens)}
		})),
		newChart("Requests", "requests", []string{"Answered", "Refused", "Client error", "Failed"},
			all(func(u store.Usage) []float64 {
				answered, failed := float64(u.Requests-u.Errors()), float64(u.Outages())
				return []float64{answered, float64(u.PolicyErrors), float64(u.CallerErrors), failed}
			})),
		newSpread("Time to first token, in seconds", "s", "p95", all(func(u store.Usage) []float64 {
			p := u.Percentiles()
			return []float64{p.FirstTokenP50 / 1000, p.FirstTokenP95 / 1000}
		})),
		newSpread("Output speed", "tokens/s", "slowest 5%", all(func(u store.Usage) []float64 {
			p := u.Percentiles()
			return []float64{p.SpeedP50, p.SpeedP5}
		})),
	}
	charts[1].Series[3].Class = "series-bad"
	if len(groups) > 0 {
		copy(charts, groupCharts(periods, groups, perGroup))
	}
	return charts
}

// groupCharts returns the charts of tokens and requests, stacked by the busiest groups.
func groupCharts(periods []period, groups []named, perGroup map[string]map[named]*store.Usage) []chart {
	var names []string
	for _, g := range groups[:min(len(groups), maxSeries)] {
		names = append(names, g.Name)
	}
	if len(groups) > maxSeries {
		names = append(names, "Others")
	}
	stacked := func(value func(*store.Usage) int64) []bar {
		return bars(periods, func(id string) []float64 {
			values := make([]float64, len(names))
			for n, g := range groups {
				if u := perGroup[id][g]; u != nil {
					values[min(n, maxSeries)] += float64(value(u))
				}
			}
			return values
		})
	}
	return []chart{
		newChart("Tokens", "tokens", names, stacked(func(u *store.Usage) int64 { return u.Sums().Tokens })),
		newChart("Requests", "requests", names, stacked(func(u *store.Usage) int64 { return u.Requests })),
	}
}
