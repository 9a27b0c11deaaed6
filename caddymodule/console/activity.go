package console

import (
	"cmp"
	"context"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
)

// activityTab shows requests of the account: numbers and names, never content.
var activityTab = &tab{
	path: "activity", name: "activity", title: "Activity", data: activityData,
	live: []string{"activity-list"},
}

// requestTab shows one request.
var requestTab = &tab{path: "activity/{id}", name: "request", title: "Request", data: requestData}

type activityPage struct {
	manage.Requests
	Filter manage.Activity
	Active bool // Filter selects less than all requests
	Kinds  []choice
	List   listing[requestGroup]
	Newest string // URL of the first page, "" on it
	Older  string // URL of the next page, "" if there is none
	CSV    string // URL of the same requests
}

// requestGroup is a request, or equal failures that follow one another, of which it shows the newest.
type requestGroup struct {
	loggedRequest
	Others []loggedRequest
	Count  int // with those that entries count
}

// grouped joins equal failures with at most ten minutes between two of them, if join is set.
func grouped(requests []loggedRequest, join bool) (groups []requestGroup) {
	type failure struct{ kind, text, model, connector string }
	last := make(map[failure]int) // index in groups
	times := make(map[failure]time.Time)
	for _, r := range requests {
		f := failure{r.Kind(), r.ErrorCode + r.Error + r.Reason, cmp.Or(r.Deployment, r.Model), r.Connector}
		if i, found := last[f]; join && found && times[f].Sub(r.Time) <= 10*time.Minute {
			groups[i].Others, groups[i].Count = append(groups[i].Others, r), groups[i].Count+r.Count()
		} else {
			last[f], groups = len(groups), append(groups, requestGroup{loggedRequest: r, Count: r.Count()})
		}
		times[f] = r.Time
	}
	return groups
}

// activityColumns are those of the list. The search and the filters are of the query.
var activityColumns = columns[requestGroup]{
	name: "activity", kept: []string{"until", "before"},
	orders: []string{"id", "time", "key", "model", "status", "wait", "first", "duration", "in", "out"},
	values: func(r requestGroup) []any {
		return []any{
			r.ID, &r.Time, r.KeyName, cmp.Or(r.Deployment, r.Model), r.Status, r.WaitMillis, r.FirstTokenMillis,
			r.DurationMillis, r.InputTokens, r.OutputTokens,
		}
	},
}

// loggedRequest is a request with the name of its connector.
type loggedRequest struct {
	activity.Request
	ConnectorName string
	Today         bool
}

var (
	outcomes = []named{{"ok", "Answered"}, {"failed", "Failed"}, {"refused", "Refused"}, {"client", "Client error"}}
	ages     = []named{
		{"15m", "Last 15 minutes"},
		{"1h", "Last hour"},
		{"24h", "Last 24 hours"},
		{"7d", "Last 7 days"},
		{"30d", "Last 30 days"},
	}
)

// activityFilter returns the filter of the URL.
func activityFilter(query url.Values) manage.Activity {
	get := query.Get
	return manage.Activity{
		Key: get("key"), User: get("user"), Model: get("model"), Connector: get("connector"), Status: get("status"),
		Error: get("error"), Since: get("since"), Until: get("until"), Search: strings.TrimSpace(get("q")),
	}
}

// activitySelects returns the choices of the form. connectors maps ids to names.
func activitySelects(v *visit, f manage.Activity, connectors map[string]string) []selection {
	keys := []named{{activity.ConsoleKey, "Console"}}
	var people, models, servers []named
	for _, k := range load(v, v.Manage.Keys) {
		keys = append(keys, named{k.ID, k.Name})
		if person := (named{k.Owner, k.OwnerName}); k.OwnerName != "" && !slices.Contains(people, person) {
			people = append(people, person)
		}
	}
	for _, d := range load(v, v.Manage.Deployments) {
		models = append(models, named{d.Name, d.Name})
	}
	for id, name := range connectors {
		servers = append(servers, named{id, name})
	}
	selects := []selection{
		{"key", "Key", f.Key, keys},
		{"user", "Person", f.User, people},
		{"model", "Model", f.Model, models},
		{"connector", "Connector", f.Connector, servers},
		{"status", "Status", f.Status, outcomes},
		{"error", "Failure", f.Error, nil},
		{"since", "Time", f.Since, ages},
	}
	for i := range selects {
		c := &selects[i]
		if c.Name != "status" && c.Name != "since" {
			slices.SortFunc(c.Options, func(a, b named) int { return strings.Compare(a.Name, b.Name) })
		}
		if c.Value != "" && !slices.ContainsFunc(c.Options, func(o named) bool { return o.ID == c.Value }) {
			c.Options = append(slices.Clone(c.Options), named{c.Value, c.Value}) // removed, or of a link
		}
	}
	return selects
}

// activityData lists a page of requests. If they are sorted, or not answered, it counts and sorts as many as it can.
func activityData(v *visit) any {
	query, names := v.r.URL.Query(), connectorNames(v)
	selected := activityFilter(query)
	p := &activityPage{Filter: selected, Active: selected != manage.Activity{}}
	sorted, failures := query.Get("sort") != "", selected.Status != "" && selected.Status != string(activity.Answered)
	if selected.Before, selected.Limit = query.Get("before"), pageSize; sorted || failures {
		selected.Limit = activity.MaxPage
	}
	p.Requests = load(v, func(ctx context.Context) (manage.Requests, error) { return v.Manage.Activity(ctx, selected) })
	p.CSV = csvURL("activity", query)
	columns := activityColumns
	columns.selects = activitySelects(v, p.Filter, names)
	p.List = list(v, columns, grouped(logged(v, p.Requests.Requests, names), failures && !sorted))
	if failures {
		p.Kinds = kindsOf(p.Requests.Requests, "", func(kind string) string { return p.List.url("error", kind) })
	}
	if p.Filter.Error != "" {
		p.Kinds = append(p.Kinds, choice{Title: "All", URL: p.List.url("error", "")})
	}
	if selected.Before != "" {
		p.Newest = p.List.url("before", "")
	}
	if p.Next != "" && p.List.Next == "" {
		p.Older = p.List.url("before", p.Next)
	}
	return p
}

// csvURL returns the URL of a list as a file, with the filters of its page.
func csvURL(list string, query url.Values) string {
	return "/console/api/" + list + queryWith(query, "format", "csv", "search", strings.TrimSpace(query.Get("q")),
		"q", "", "sort", "", "page", "", "before", "")
}

// connectorNames returns the names of connectors by id.
func connectorNames(v *visit) map[string]string {
	names := make(map[string]string)
	for _, c := range load(v, v.Manage.Connectors) {
		names[c.ID] = c.Name
	}
	return names
}

// logged adds the names of connectors to requests.
func logged(v *visit, requests []activity.Request, names map[string]string) []loggedRequest {
	today := v.Now().UTC().Format(time.DateOnly)
	out := make([]loggedRequest, len(requests))
	for i, r := range requests {
		out[i] = loggedRequest{r, cmp.Or(names[r.Connector], r.Connector), r.Time.UTC().Format(time.DateOnly) == today}
	}
	return out
}

// lastRequests returns the newest requests that a query selects, for the page of a model, a key or a connector.
func lastRequests(v *visit, query manage.Activity) []loggedRequest {
	query.Limit = 8
	found := load(v, func(ctx context.Context) (manage.Requests, error) { return v.Manage.Activity(ctx, query) })
	return logged(v, found.Requests, connectorNames(v))
}

func requestData(v *visit) any {
	r := load(v, func(ctx context.Context) (activity.Request, error) { return v.Manage.Request(ctx, v.id()) })
	return &logged(v, []activity.Request{r}, connectorNames(v))[0]
}

// millis is [seconds] for milliseconds.
func millis(ms float64) string { return seconds(time.Duration(ms * float64(time.Millisecond))) }

// seconds formats a duration with about two significant digits; "" for 0.
func seconds(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < time.Millisecond:
		return "<1 ms"
	case d < 10*time.Millisecond:
		return decimal(float64(d)/float64(time.Millisecond)) + " ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 100*time.Second:
		return decimal(d.Seconds()) + " s"
	}
	return strconv.Itoa(int(d.Minutes())) + " min " + strconv.Itoa(int(d.Seconds())%60) + " s"
}

// decimal formats a number with its significant digits.
func decimal(f float64) string {
	if f >= 100 {
		return count(f + .5)
	}
	return strconv.FormatFloat(f, 'f', 1, 64)
}

// count formats an integer of any type, with separated thousands.
func count(n any) string {
	whole := reflect.ValueOf(n).Convert(reflect.TypeFor[int64]()).Int()
	return strings.ReplaceAll(humanize.Comma(whole), ",", "\u202f")
}
