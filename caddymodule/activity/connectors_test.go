package activity_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/tests/storetest"
)

// The hours of a connector are those of the last day, also of before a restart.
func TestConnectorHours(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "activity.db")
	synctest.Test(t, func(t *testing.T) {
		st := storetest.New(t)
		l, n := newLog(t, activity.Options{Store: st, Path: path}), 0
		start := time.Now().UTC().Truncate(time.Hour)
		through := func(connector, class string) {
			r := request(n)
			r.Connector, r.ErrorClass, r.ErrorCode, n = connector, class, class, n+1
			l.Record(account, r)
		}
		hours := func() []activity.ConnectorHour {
			hours, err := l.Connector(t.Context(), account, "con_a", "")
			must(t, err)
			return hours
		}
		through("con_a", "")
		through("con_a", activity.UpstreamError)
		through("con_a", activity.CallerError)
		through("con_a", activity.CallerError)
		through("", activity.PolicyError)
		through("con_idle", "")
		must(t, l.Close())
		l = newLog(t, activity.Options{Store: st, Path: path})
		time.Sleep(23 * time.Hour)
		through("con_a", "")
		if got := hours(); len(got) != 2 || got[0].Requests != 4 || got[0].Failed != 1 || got[1].Requests != 1 ||
			!got[0].Start.Equal(start) || !got[1].Start.Equal(start.Add(23*time.Hour)) {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Hour)
		through("con_a", "")
		if got := hours(); len(got) != 2 || got[0].Requests != 1 || got[1].Requests != 1 {
			t.Errorf("a day later: %+v", got)
		}
	})
}
