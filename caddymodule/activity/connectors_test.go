package activity_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
)

// The hours of a connector are those of the last day.
func TestConnectorHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := activity.NewHours()
		start := time.Now().UTC().Truncate(time.Hour)
		through := func(connector, class string) {
			l.Through(&activity.Request{Connector: connector, ErrorClass: class})
		}
		through("con_a", "")
		through("con_a", activity.UpstreamError)
		through("con_a", activity.CallerError)
		through("", activity.PolicyError)
		through("con_idle", "")
		time.Sleep(23 * time.Hour)
		through("con_a", "")
		hours := l.Connector("con_a")
		if len(hours) != 2 || hours[0].Requests != 3 || hours[0].Failed != 1 || !hours[0].Start.Equal(start) ||
			!hours[1].Start.Equal(start.Add(23*time.Hour)) {
			t.Errorf("%+v", hours)
		}
		time.Sleep(time.Hour)
		through("con_a", "")
		if hours = l.Connector("con_a"); len(hours) != 2 || hours[0].Requests != 1 || hours[1].Requests != 1 {
			t.Errorf("a day later: %+v", hours)
		}
		through("con_new", "")
		if n := l.ConnectorHours(); n != 3 || l.Connector("con_idle") != nil {
			t.Errorf("%d hours are kept", n)
		}
	})
}
