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
	Filter filter
	Items  []loggedRequest
	Newest string // URL of the first page, "" on it
	Older  string // URL of the next page, "" if there is none
}

// loggedRequest is a request with the name of its connector.
type loggedRequest struct {
	activity.Request
	ConnectorName string
	Today         bool
}

// filter selects requests of the list, and contains the choices of its form.
type filter struct {
	manage.Activity
	Selects []selection
}

// selection is a parameter of the URL with its values.
type selection struct {
	Name, Label, Value string
	Options            []named
}

// Active reports whether the filter selects less than all requests.
func (f filter) Active() bool { return f.Activity != manage.Activity{} }

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

// newFilter returns the filter of the URL. connectors maps ids to names.
func newFilter(v *visit, query url.Values, connectors map[string]string) filter {
	get := query.Get
	f := filter{Activity: manage.Activity{
		Key: get("key"), User: get("user"), Model: get("model"), Connector: get("connector"), Status: get("status"),
		Since: get("since"), Until: get("until"), Search: strings.TrimSpace(get("q")),
	}}
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
	f.Selects = []selection{
		{"key", "Key", f.Key, keys},
		{"user", "Person", f.User, people},
		{"model", "Model", f.Model, models},
		{"connector", "Connector", f.Connector, servers},
		{"status", "Status", f.Status, outcomes},
		{"since", "Time", f.Since, ages},
	}
	for i := range f.Selects {
		c := &f.Selects[i]
		if c.Name != "status" && c.Name != "since" {
			slices.SortFunc(c.Options, func(a, b named) int { return strings.Compare(a.Name, b.Name) })
		}
		if c.Value != "" && !slices.ContainsFunc(c.Options, func(o named) bool { return o.ID == c.Value }) {
			c.Options = append(slices.Clone(c.Options), named{c.Value, c.Value}) // removed, or of a link
		}
	}
	return f
}

func activityData(v *visit) any {
	query, names := v.r.URL.Query(), connectorNames(v)
	p := &activityPage{Filter: newFilter(v, query, names)}
	selected := p.Filter.Activity
	selected.Before, selected.Limit = query.Get("before"), pageSize
	p.Requests = load(v, func(ctx context.Context) (manage.Requests, error) { return v.Manage.Activity(ctx, selected) })
	p.Items = logged(v, p.Requests.Requests, names)
	link := func(before string) string {
		if query.Del("before"); before != "" {
			query.Set("before", before)
		}
		return "/console/activity?" + query.Encode()
	}
	if selected.Before != "" {
		p.Newest = link("")
	}
	if p.Next != "" {
		p.Older = link(p.Next)
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
