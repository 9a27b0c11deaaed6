package activity_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
)

// The hours of a connector are those of the last day, with the mean of its round trips.
func TestConnectorHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := activity.NewHours()
		start := time.Now().UTC().Truncate(time.Hour)
		l.Pinged("con_a", 10*time.Millisecond)
		l.Pinged("con_a", 20*time.Millisecond)
		l.Through(&activity.Request{Connector: "con_a"})
		l.Through(&activity.Request{Connector: "con_a", ErrorClass: activity.UpstreamError})
		l.Through(&activity.Request{Connector: "con_a", ErrorClass: activity.CallerError})
		l.Through(&activity.Request{ErrorClass: activity.PolicyError})
		l.Pinged("con_idle", time.Millisecond)
		time.Sleep(23 * time.Hour)
		l.Pinged("con_a", time.Millisecond)
		hours := l.Connector("con_a")
		if len(hours) != 2 || hours[0].Requests != 3 || hours[0].Failed != 1 || hours[0].RTT != 15 ||
			!hours[0].Start.Equal(start) || !hours[1].Start.Equal(start.Add(23*time.Hour)) || hours[1].RTT != 1 {
			t.Errorf("%+v", hours)
		}
		time.Sleep(time.Hour)
		l.Through(&activity.Request{Connector: "con_a"})
		hours = l.Connector("con_a")
		if len(hours) != 2 || hours[0].Requests != 0 || hours[1].Requests != 1 || hours[1].RTT != 0 {
			t.Errorf("a day later: %+v", hours)
		}
		l.Pinged("con_new", time.Millisecond)
		if n := l.ConnectorHours(); n != 3 || l.Connector("con_idle") != nil {
			t.Errorf("%d hours are kept", n)
		}
	})
}
