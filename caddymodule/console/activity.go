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
var activityTab = &tab{
	name: "activity", title: "Activity", data: activityData,
	live: []string{"activity-list", "activity-usage"}, every: 10 * time.Second,
}

type activityPage struct {
	List listing[activity.Request]
	Days []store.UsageDay // oldest first, as the plot wants them
	Sum  store.UsageDay
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
	p := &activityPage{Days: days}
	p.List = list(activityPath, v.r.URL.Query(), requests, func(r activity.Request) string {
		return strings.Join([]string{r.KeyName, r.KeyID, r.Deployment, r.Dialect, r.Operation, strconv.Itoa(r.Status)}, "\n")
	})
	for _, d := range days {
		p.Sum.Requests += d.Requests
		p.Sum.Errors += d.Errors
		p.Sum.InputTokens += d.InputTokens
		p.Sum.OutputTokens += d.OutputTokens
	}
	return p, nil
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

// countAny is [count] for pages, whose numbers are of several types.
func countAny(n any) string {
	if n, ok := n.(int64); ok {
		return count(n)
	}
	return count(int64(n.(int)))
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
