package console

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
)

// activityTab shows the last requests of the account: numbers and names, never content.
var activityTab = &tab{
	path: "activity", name: "activity", title: "Activity", data: activityData,
	live: []string{"activity-list"}, every: 10 * time.Second,
	clustered: 2 * time.Second, // requests at other edges cause no change event here
}

// requestTab shows one request.
var requestTab = &tab{path: "activity/{id}", name: "request", title: "Request", data: requestData}

type activityPage struct {
	Filter filter
	List   listing[loggedRequest]
	Recent manage.Recent
}

// loggedRequest is a request with the name of its connector.
type loggedRequest struct {
	activity.Request
	ConnectorName string
	Today         bool
}

// filter selects requests of the list; it also has the choices of the form.
type filter struct {
	Key, Model, Status, Since string
	Keys                      []usageGroup
	Models                    []string
	Statuses, Times           []usageGroup
}

// Active reports whether the filter selects less than all requests.
func (f *filter) Active() bool { return f.Key+f.Model+f.Status+f.Since != "" }

var (
	outcomes = []usageGroup{{"ok", "Answered"}, {"failed", "Failed"}, {"client", "Client's fault"}, {"refused", "Refused"}}
	ages     = []usageGroup{{"15m", "Last 15 minutes"}, {"1h", "Last hour"}, {"24h", "Last 24 hours"}}
)

// consoleKey stands for the console in the choice of a key.
const consoleKey = "console"

func (r *loggedRequest) keyID() string {
	if r.FromConsole() {
		return consoleKey
	}
	return r.KeyID
}

// newFilter returns the filter of the URL, with the keys and models of the requests.
func newFilter(v *visit, requests []loggedRequest) filter {
	query := v.r.URL.Query()
	f := filter{
		Key: query.Get("key"), Model: query.Get("model"), Status: query.Get("status"), Since: query.Get("since"),
		Statuses: outcomes, Times: ages,
	}
	for _, r := range requests {
		if key := (usageGroup{r.keyID(), cmp.Or(r.KeyName, r.keyID())}); key.ID != "" && !slices.Contains(f.Keys, key) {
			f.Keys = append(f.Keys, key)
		}
		if r.Deployment != "" && !slices.Contains(f.Models, r.Deployment) {
			f.Models = append(f.Models, r.Deployment)
		}
	}
	slices.SortFunc(f.Keys, func(a, b usageGroup) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(f.Models)
	return f
}

// matches reports whether the filter selects the request.
func (f *filter) matches(r *loggedRequest, now time.Time) bool {
	age, err := time.ParseDuration(f.Since)
	return (f.Key == "" || f.Key == r.keyID()) && (f.Model == "" || f.Model == r.Deployment) &&
		(f.Status == "" || f.Status == string(r.Outcome())) && (err != nil || now.Sub(r.Time) <= age)
}

func activityData(v *visit) any {
	p := &activityPage{Recent: load(v, v.Manage.Recent)}
	requests := logged(v, p.Recent.Requests)
	p.Filter = newFilter(v, requests)
	matching := slices.DeleteFunc(slices.Clone(requests),
		func(r loggedRequest) bool { return !p.Filter.matches(&r, v.Now()) })
	p.List = list(v, "activity", matching, func(r loggedRequest) string {
		return strings.Join([]string{
			r.ID, r.KeyName, r.KeyID, r.Deployment, r.Model, r.ConnectorName, r.Dialect, r.Operation, strconv.Itoa(r.Status),
			r.ErrorCode, r.Error, r.Dropped,
		}, "\n")
	}, "key", "model", "status", "since")
	return p
}

// logged adds the names of connectors to requests.
func logged(v *visit, requests []activity.Request) []loggedRequest {
	names := make(map[string]string)
	for _, c := range load(v, v.Manage.Connectors) {
		names[c.ID] = c.Name
	}
	today := v.Now().UTC().Format(time.DateOnly)
	out := make([]loggedRequest, len(requests))
	for i, r := range requests {
		out[i] = loggedRequest{r, cmp.Or(names[r.Connector], r.Connector), r.Time.UTC().Format(time.DateOnly) == today}
	}
	return out
}

func requestData(v *visit) any {
	r := load(v, func(ctx context.Context) (activity.Request, error) { return v.Manage.Request(ctx, v.id()) })
	return &logged(v, []activity.Request{r})[0]
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
