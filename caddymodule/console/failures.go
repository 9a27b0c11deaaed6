package console

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
)

const (
	// An error ratio is an alert above these, as in packaging/prometheus/rules.yml.
	alertRatio  = .05
	alertErrors = 5
	// An outage is over after so many answers, or after answers without a failure for so long. Home forgets it later.
	overAnswers = 20
	overAfter   = 10 * time.Minute
	forgetAfter = time.Hour
	alertModels = 3 // that are named
)

// failuresURL returns the URL of the list of failures with parameters of it: pairs of names and values.
func failuresURL(pairs ...string) string {
	query := url.Values{"status": {string(activity.Failed)}}
	for pair := range slices.Chunk(pairs, 2) {
		query.Set(pair[0], pair[1])
	}
	return activityTab.url() + "?" + query.Encode()
}

// kindsOf counts the failures since then by their kinds, the most frequent first. link returns the URL of a kind.
func kindsOf(requests []activity.Request, since string, link func(kind string) string) (kinds []choice) {
	counts := make(map[string]int)
	for _, r := range requests {
		if r.Time.Format(time.RFC3339) >= since {
			counts[r.Kind()] += r.Count()
		}
	}
	for _, kind := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	}) {
		kinds = append(kinds, choice{Title: kind + " " + count(counts[kind]), URL: link(kind)})
	}
	return kinds
}

// failures returns the failures of the last day at this gateway, the newest first; none if the usage has none, or if
// the activity cannot be read, whose page says why.
func (v *visit) failures(use *dayUsage) []activity.Request {
	failed := func(sum manage.UsageSum) bool { return sum.Outages() > 0 }
	if !v.usageMissing && !slices.ContainsFunc(use.sums, failed) {
		return nil
	}
	found, _ := v.Manage.Activity(v.ctx,
		manage.Activity{Status: string(activity.Failed), Since: "24h", Limit: activity.MaxPage})
	return found.Requests
}

// failureAlerts are about causes for which many requests failed in this hour and the last one. Unavailable models have
// alerts of their own.
func failureAlerts(v *visit, use *dayUsage, failed []activity.Request, unavailable map[string]bool) (alerts []alert) {
	hours := use.hours[len(use.hours)-2:]
	requests := make(map[string]int64) // by model
	for _, u := range use.sums {
		if u.Hour >= hours[0].id {
			requests[u.Model] += u.Requests
		}
	}
	type cause struct{ connector, kind string }
	byCause := make(map[cause][]activity.Request)
	var causes []cause
	for _, r := range failed {
		if c := (cause{r.Connector, r.Kind()}); !unavailable[r.Deployment] && !r.Time.Before(hours[0].from) {
			if byCause[c] == nil {
				causes = append(causes, c)
			}
			byCause[c] = append(byCause[c], r)
		}
	}
	for _, c := range causes {
		of, all, models := byCause[c], int64(0), []string(nil)
		for _, r := range of {
			if !slices.Contains(models, r.Deployment) {
				models, all = append(models, r.Deployment), all+requests[r.Deployment]
			}
		}
		from, to := of[len(of)-1].Time, of[0].Time
		if len(of) < alertErrors || float64(len(of)) <= alertRatio*float64(all) || v.Now().Sub(to) >= forgetAfter {
			continue
		}
		names := cmp.Or(strings.Join(models[:min(len(models), alertModels)], ", "), "no model")
		if others := len(models) - alertModels; others > 0 {
			names += fmt.Sprintf(" and %d other models", others)
		}
		a := alert{
			Bad: !v.over(models, to), From: &from, To: &to, Why: strings.ReplaceAll(c.kind, "_", " "),
			Text: fmt.Sprintf("%s requests for %s failed", count(len(of)), names),
			URL: failuresURL("connector", c.connector, "error", c.kind, "since", from.Format(time.RFC3339),
				"until", to.Add(time.Second).Format(time.RFC3339)),
		}
		if c.kind != of[0].ServerError {
			a.Why = cmp.Or(of[0].Reason, of[0].Error, a.Why)
		}
		if !a.Bad {
			a.Text += ", none since"
		}
		alerts = append(alerts, a)
	}
	return alerts
}

// over reports whether enough requests for models were answered since their last failure.
func (v *visit) over(models []string, last time.Time) bool {
	answered := 0
	for _, model := range models[:min(len(models), alertModels)] {
		found, _ := v.Manage.Activity(v.ctx, manage.Activity{
			Model: model, Status: string(activity.Answered), Limit: overAnswers,
			Since: last.Add(time.Millisecond).Format(time.RFC3339Nano),
		})
		answered += len(found.Requests)
	}
	return answered >= overAnswers || answered > 0 && v.Now().Sub(last) >= overAfter
}
