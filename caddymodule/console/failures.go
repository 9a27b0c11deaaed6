package console

import (
	"cmp"
	"fmt"
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
	// Failures are over after so many answers, or answers alone for so long. They are listed until alertAge.
	overAnswers = 20
	overAge     = 10 * time.Minute
	alertAge    = time.Hour
	alertModels = 3 // named by an alert
)

// failuresURL returns the URL of the list of failures with these parameters, pairs of names and values.
func failuresURL(pairs ...string) string {
	query := url.Values{"status": {string(activity.Failed)}}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			query.Set(pair[0], pair[1])
		}
	}
	return activityTab.url() + "?" + query.Encode()
}

// lastFailures returns the failures of the last day at this gateway, at most as many as a search finds. It is empty if
// the activity cannot be read: its page says why.
func lastFailures(v *visit) []activity.Request {
	if v.err != nil {
		return nil
	}
	found, err := v.Manage.Activity(v.ctx,
		manage.Activity{Status: string(activity.Failed), Since: "24h", Limit: activity.MaxPage})
	if err != nil {
		return nil
	}
	return found.Requests
}

// failureCause is why the requests of a model failed most often.
type failureCause struct{ connector, kind string }

// failureAlerts are about models that failed often in this hour and the last one: an alert for all models with the same
// cause, until an hour after the last failure. Unavailable models have alerts of their own.
func failureAlerts(v *visit, use *dayUsage, failed []activity.Request, unavailable map[string]bool) (alerts []alert) {
	hours := use.hours[len(use.hours)-2:]
	byModel := make(map[string]usageRow)
	for _, u := range use.sums {
		if !unavailable[u.Model] && slices.ContainsFunc(hours, func(h period) bool { return h.id == u.Hour }) {
			sum := byModel[u.Model]
			sum.Add(u.Usage)
			byModel[u.Model] = sum
		}
	}
	causes := make(map[failureCause][]activity.Request) // with the failures of their models
	var order []failureCause
	for _, d := range use.sums {
		sum := byModel[d.Model]
		delete(byModel, d.Model)
		if sum.Outages() < alertErrors || float64(sum.Outages()) <= alertRatio*float64(sum.Requests) {
			continue
		}
		of := slices.DeleteFunc(slices.Clone(failed), func(r activity.Request) bool {
			return r.Deployment != d.Model || r.Time.Before(hours[0].from)
		})
		if len(of) == 0 { // at another edge
			text := fmt.Sprintf("%s of the last %s requests for %s failed.", count(sum.Outages()), count(sum.Requests),
				cmp.Or(d.Model, "no model"))
			alerts = append(alerts, alert{Bad: true, Text: text, URL: failuresURL("model", d.Model, "since", "2h")})
			continue
		}
		cause := mainCause(of)
		if causes[cause] == nil {
			order = append(order, cause)
		}
		causes[cause] = append(causes[cause], of...)
	}
	for _, cause := range order {
		of := causes[cause]
		slices.SortStableFunc(of, func(a, b activity.Request) int { return b.Time.Compare(a.Time) })
		if v.Now().Sub(of[0].Time) < alertAge {
			alerts = append(alerts, failureAlert(v, cause, of))
		}
	}
	return alerts
}

// mainCause returns the most frequent cause of failures, the newest first.
func mainCause(of []activity.Request) (main failureCause) {
	counts := make(map[failureCause]int)
	for _, r := range of {
		cause := failureCause{r.Connector, r.Kind()}
		if counts[cause]++; counts[cause] > counts[main] {
			main = cause
		}
	}
	return main
}

// failureAlert returns the alert about failures, the newest first.
func failureAlert(v *visit, cause failureCause, of []activity.Request) alert {
	var models []string
	for _, r := range of {
		if name := cmp.Or(r.Deployment, "no model"); !slices.Contains(models, name) {
			models = append(models, name)
		}
	}
	from, to := of[len(of)-1].Time, of[0].Time
	until := to.Add(time.Second).Truncate(time.Second).Format(time.RFC3339)
	a := alert{Bad: !over(v, models, to), From: &from, To: &to}
	names, only := strings.Join(models[:min(len(models), alertModels)], ", "), ""
	switch others := len(models) - alertModels; {
	case others > 0:
		names += fmt.Sprintf(" and %d other models", others)
	case len(models) == 1:
		only, cause = of[0].Deployment, failureCause{}
	}
	a.URL = failuresURL("model", only, "connector", cause.connector, "error", cause.kind,
		"since", from.Truncate(time.Second).Format(time.RFC3339), "until", until)
	a.Text = fmt.Sprintf("%s requests for %s failed", count(len(of)), names)
	if !a.Bad {
		a.Text += ", none since"
	}
	for i, k := range kindsOf(of, func(string) string { return "" }) {
		a.Why += []string{"", ", "}[min(i, 1)] + k.Title
	}
	if from.Truncate(time.Minute).Equal(to.Truncate(time.Minute)) {
		a.To = nil
	}
	return a
}

// over reports whether enough requests for models were answered since their last failure.
func over(v *visit, models []string, last time.Time) bool {
	answered := 0
	for _, model := range models[:min(len(models), alertModels)] {
		found, err := v.Manage.Activity(v.ctx, manage.Activity{
			Model: model, Status: string(activity.Answered), Limit: overAnswers,
			Since: last.Add(time.Millisecond).Format(time.RFC3339Nano),
		})
		if err == nil {
			answered += len(found.Requests)
		}
	}
	return answered >= overAnswers || answered > 0 && v.Now().Sub(last) >= overAge
}
