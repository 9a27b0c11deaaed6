package console

import (
	"reflect"
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
	clustered: 2 * time.Second, // requests at other edges are no changes here
}

type activityPage struct {
	List   listing[activity.Request]
	Recent manage.Recent
}

func activityData(v *visit) any {
	recent := load(v, v.Manage.Recent)
	p := &activityPage{Recent: recent}
	p.List = list(v, "activity", recent.Requests, func(r activity.Request) string {
		return strings.Join([]string{r.KeyName, r.KeyID, r.Deployment, r.Dialect, r.Operation, strconv.Itoa(r.Status)}, "\n")
	})
	return p
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
