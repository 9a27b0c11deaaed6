package console

import (
	"context"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

const usageDays = 30 // that the plot shows

// activityTab shows the requests and the usage of the account: numbers and names,
// never content.
var activityTab = &tab{
	path: "activity", name: "activity", title: "Activity", data: activityData,
	live: []string{"activity-list", "activity-usage"}, every: 10 * time.Second,
	clustered: 2 * time.Second, // requests at other edges are no changes here
}

type activityPage struct {
	List   listing[activity.Request]
	Recent manage.Recent
	Days   []manage.UsageSum // oldest first, as the plot wants them
	Sum    store.Usage
}

func activityData(v *visit) any {
	recent := load(v, v.Manage.Recent)
	p := &activityPage{Days: usageByDay(v), Recent: recent}
	p.List = list(v, "activity", recent.Requests, func(r activity.Request) string {
		return strings.Join([]string{r.KeyName, r.KeyID, r.Deployment, r.Dialect, r.Operation, strconv.Itoa(r.Status)}, "\n")
	})
	for _, d := range p.Days {
		p.Sum.Add(d.Usage)
	}
	return p
}

// usageByDay returns the usage of each of the last days, also of those without any.
func usageByDay(v *visit) []manage.UsageSum {
	today := v.Now().UTC()
	first := today.AddDate(0, 0, 1-usageDays).Format(time.DateOnly)
	used := make(map[string]store.Usage)
	for _, sum := range load(v, func(ctx context.Context) ([]manage.UsageSum, error) {
		return v.Manage.Usage(ctx, manage.Usage{From: first, To: today.Format(time.DateOnly)})
	}) {
		used[sum.Day] = sum.Usage
	}
	days := make([]manage.UsageSum, usageDays)
	for i := range days {
		day := today.AddDate(0, 0, i+1-usageDays).Format(time.DateOnly)
		days[i] = manage.UsageSum{Day: day, Usage: used[day]}
	}
	return days
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
