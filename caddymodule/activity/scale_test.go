package activity_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/tests/storetest"
)

// cpu returns the processor time of this process.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// season records the last 90 days of 8 keys and 6 models. It sleeps now and then, until they are saved.
func season(l *activity.Log, requests int) {
	step := 90 * 24 * time.Hour / time.Duration(requests)
	first := time.Now().AddDate(0, 0, -90)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range requests {
		key, model := i%8, i*7%6
		r := activity.Request{
			ID: fmt.Sprintf("req_%024x%06d", random.Uint64(), i), Time: first.Add(time.Duration(i) * step),
			KeyID:   fmt.Sprintf("key_06h195tk71%08d", key),
			KeyName: fmt.Sprintf("laptop-of-%d", key), Deployment: fmt.Sprintf("qwen3-%d", model),
			Connector: fmt.Sprintf("con_06h195tk71%08d", model), Dialect: "chat", Operation: "chat/completions", Status: 200,
			Streamed: true, WaitMillis: float64(i % 300), DurationMillis: float64(1000 + i%9000),
			FirstTokenMillis: float64(100 + i%900), BusyMillis: float64(900 + i%9000), InputTokens: 1000 + i%9000,
			CachedTokens: i % 900, OutputTokens: 10 + i%900,
		}
		switch {
		case i == requests/10*9:
			r.Deployment = "rare"
		case i%50 == 1:
			r.Status, r.ErrorClass, r.ErrorCode = 502, activity.UpstreamError, "upstream_error"
			r.Error = "The model server answered `500`. Try again, or look at its log."
		case i%50 == 2:
			r.Status, r.ErrorClass, r.ErrorCode, r.Error = 429, activity.PolicyError, "rate_limited", "60 requests a minute"
		}
		l.Record(account, r)
		if i%4000 == 0 {
			time.Sleep(11 * time.Second)
		}
	}
}

// Pages of a season of requests take little of the processor's time, and the file stays below its bound.
func TestSeason(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	path := filepath.Join(t.TempDir(), "activity.db")
	synctest.Test(t, func(t *testing.T) {
		const maxBytes = 64 << 20
		l := newLog(t, activity.Options{Store: storetest.New(t), Path: path})
		began := cpu(t)
		season(l, 200_000)
		t.Logf("recording: %v", cpu(t)-began)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if info, err := os.Stat(path); err != nil || info.Size() > maxBytes {
			t.Errorf("the file: %v, %v", info.Size(), err)
		} else {
			t.Logf("%d bytes", info.Size())
		}
		for name, q := range map[string]activity.Query{
			"all": {}, "failed": {Outcome: activity.Failed}, "rare": {Model: "rare"}, "text": {Text: "No Such Text"},
			"wide text": {Text: "Nö Such Text"}, "unknown id": {ID: "req_unknown"}, "unknown key": {Keys: []string{"key_x"}},
			"many": {Limit: 1000}, "a name of JSON": {Text: "duration_ms"}, "old": {To: time.Now().Add(-60 * 24 * time.Hour)},
			"since": {From: time.Now().Add(-time.Hour), Text: "nothing"},
		} {
			began := cpu(t)
			found := find(t, l, q)
			took := cpu(t) - began
			if name == "rare" && len(found.Requests) != 1 || name == "many" && len(found.Requests) != 1000 {
				t.Errorf("%s: %d requests", name, len(found.Requests))
			}
			t.Logf("%s: %v, %d requests, since %v, %q", name, took, len(found.Requests), found.Since, found.Next)
		}
	})
}
