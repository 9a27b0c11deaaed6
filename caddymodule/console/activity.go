package console

import (
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	activityPath = "/console/activity"
	usageDays    = 30 // that the plot shows
)

// activityTab shows what the account's keys are used for: numbers and names,
// never content.
func activityTab() *tab {
	return &tab{
		name: "activity", title: "Activity", data: activityData,
		live: []string{"activity-list", "activity-usage"}, every: 10 * time.Second,
	}
}

type activityPage struct {
	List listing[requestRow]
	Days []dayRow // oldest first, as the plot wants them
	Sum  dayRow
}

type requestRow struct {
	activity.Request
	Class  string // of the status
	Took   string
	First  string
	Input  string
	Output string
}

type dayRow struct {
	store.UsageDay
	RequestsText, ErrorsText, InputText, OutputText string
}

func activityData(v *visit) (any, error) {
	requests, err := v.manage.Activity(v.Account)
	if err != nil {
		return nil, err
	}
	days, err := v.manage.Usage(v.ctx, v.Account, usageDays)
	if err != nil {
		return nil, err
	}
	found := list(activityPath, v.r.URL.Query(), requests, func(r activity.Request) string {
		return strings.Join([]string{r.KeyName, r.KeyID, r.Deployment, r.Dialect, r.Operation, strconv.Itoa(r.Status)}, "\n")
	})
	p := &activityPage{List: mapListing(found, requestRowOf), Days: make([]dayRow, 0, len(days))}
	var sum store.UsageDay
	for _, d := range days {
		sum.Requests += d.Requests
		sum.Errors += d.Errors
		sum.InputTokens += d.InputTokens
		sum.OutputTokens += d.OutputTokens
		p.Days = append(p.Days, dayRowOf(d))
	}
	p.Sum = dayRowOf(sum)
	return p, nil
}

func requestRowOf(r activity.Request) requestRow {
	row := requestRow{Request: r, Took: seconds(r.Duration), First: seconds(r.FirstToken)}
	switch {
	case r.Status < 400:
		row.Class = "badge-ok"
	case r.Status < 500:
		row.Class = "badge-warn"
	default:
		row.Class = "badge-bad"
	}
	about := ""
	if r.Estimated {
		about = "≈\u202f"
	}
	if r.InputTokens > 0 {
		row.Input = about + count(int64(r.InputTokens))
	}
	if r.OutputTokens > 0 {
		row.Output = about + count(int64(r.OutputTokens))
	}
	return row
}

func dayRowOf(d store.UsageDay) dayRow {
	return dayRow{
		UsageDay: d, RequestsText: count(d.Requests), ErrorsText: count(d.Errors),
		InputText: count(d.InputTokens), OutputText: count(d.OutputTokens),
	}
}

// millis writes milliseconds; nothing for none.
func millis(ms float64) string {
	if ms <= 0 {
		return ""
	}
	return seconds(time.Duration(ms * float64(time.Millisecond)))
}

// seconds writes a duration with about two digits that matter; nothing for
// none.
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

// decimal writes a number with the digits that matter.
func decimal(f float64) string {
	if f >= 100 {
		return count(int64(f + .5))
	}
	return strconv.FormatFloat(f, 'f', 1, 64)
}

// count writes a number with its thousands apart.
func count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteRune('\u202f')
		}
		b.WriteRune(d)
	}
	return b.String()
}
