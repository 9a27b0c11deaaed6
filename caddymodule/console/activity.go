package console

import (
	"cmp"
	"context"
	"maps"
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
}

// requestGroup is a request, or equal failures that follow one another.
type requestGroup struct {
	loggedRequest                 // the newest
	Others        []loggedRequest // the others, the newest first
}

// Oldest returns the first request of the group.
func (g requestGroup) Oldest() loggedRequest {
	if len(g.Others) == 0 {
		return g.loggedRequest
	}
	return g.Others[len(g.Others)-1]
}

// Count returns the number of requests, with those that entries count.
func (g requestGroup) Count() int {
	n := max(1, g.Refusals)
	for _, r := range g.Others {
		n += max(1, r.Refusals)
	}
	return n
}

// maxGap is the longest time between two failures of a group.
const maxGap = 10 * time.Minute

// grouped joins equal failures, if the page lists nothing else.
func grouped(requests []loggedRequest, join bool) (groups []requestGroup) {
	type failure struct{ kind, code, text, model, connector string }
	last := make(map[failure]int) // index in groups
	for _, r := range requests {
		f := failure{r.Kind(), r.ErrorCode, r.Error + r.Reason, cmp.Or(r.Deployment, r.Model), r.Connector}
		if i, found := last[f]; join && found && groups[i].Oldest().Time.Sub(r.Time) <= maxGap {
			groups[i].Others = append(groups[i].Others, r)
			continue
		}
		last[f] = len(groups)
		groups = append(groups, requestGroup{loggedRequest: r})
	}
	return groups
}

// kindsOf counts failures by their kinds, the most frequent first. link returns the URL of the list of a kind.
func kindsOf(requests []activity.Request, link func(kind string) string) (kinds []choice) {
	counts := make(map[string]int)
	for _, r := range requests {
		counts[r.Kind()] += max(1, r.Refusals)
	}
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	for _, name := range names {
		kinds = append(kinds, choice{Title: name + " " + count(counts[name]), URL: link(name)})
	}
	return kinds
}

var activityColumns = columns[requestGroup]{
	name: "activity", title: func(r requestGroup) string { return r.ID }, kept: []string{"until", "before"},
	orders: []order[requestGroup]{
		{"time", true, by(func(r requestGroup) int64 { return r.Time.UnixMilli() })},
		{"key", false, byText(func(r requestGroup) string { return r.KeyName })},
		{"model", false, byText(func(r requestGroup) string { return cmp.Or(r.Deployment, r.Model) })},
		{"status", true, by(func(r requestGroup) int { return r.Status })},
		{"wait", true, by(func(r requestGroup) float64 { return r.WaitMillis })},
		{"first", true, by(func(r requestGroup) float64 { return r.FirstTokenMillis })},
		{"duration", true, by(func(r requestGroup) float64 { return r.DurationMillis })},
		{"in", true, by(func(r requestGroup) int { return r.InputTokens })},
		{"out", true, by(func(r requestGroup) int { return r.OutputTokens })},
	},
}

// loggedRequest is a request with the name of its connector.
type loggedRequest struct {
	activity.Request
	ConnectorName string
	Today         bool
}

var (
	outcomes = []named{{"ok", "Answered"}, {"failed", "Failed"}, {"refused", "Refused"}, {"client", "Client"}}
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
	columns := activityColumns
	columns.selects = activitySelects(v, p.Filter, names)
	p.List = list(v, columns, grouped(logged(v, p.Requests.Requests, names), failures && !sorted))
	if failures {
		p.Kinds = kindsOf(p.Requests.Requests, func(kind string) string { return p.List.url("error", kind) })
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
