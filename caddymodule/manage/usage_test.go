package manage_test

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/observed"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// usageOf returns usage as the operator gets it.
func usageOf(t *testing.T, s *manage.Service, u manage.Usage) []manage.UsageSum {
	t.Helper()
	sums, err := s.Usage(asOperator(t.Context()), u)
	if err != nil {
		t.Errorf("%+v: %v", u, err)
	}
	return sums
}

func sumOf(sums []manage.UsageSum) (sum store.Usage) {
	for _, s := range sums {
		sum.Add(s.Usage)
	}
	return sum
}

// Sums by key, by model, by day and by all of them are the same, and none is lost or counted
// twice: with several gateways that restart, and keys that are removed.
func TestUsageSumsAgree(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { checkSums(t, dir, rand.New(rand.NewPCG(seed, 18))) })
		})
	}
}

func checkSums(t *testing.T, dir string, random *rand.Rand) {
	kv := storetest.Share(storetest.OpenBolt(t, filepath.Join(dir, "shared.db")))
	ahead := 0 // days
	now := func() time.Time { return time.Now().AddDate(0, 0, ahead) }
	open := func(o store.Options) (*store.Store, *activity.Log) {
		o.Now = now
		if o.Edge != "" {
			o.Own = storetest.OpenBolt(t, filepath.Join(dir, o.Edge))
		}
		st, err := store.New(kv, o)
		must(t, err)
		return st, activity.New(activity.Options{Store: st})
	}
	var want store.Usage
	for step := range 12 {
		st, log := open(store.Options{Edge: []string{"", "a", "b"}[step%3]})
		k, _, err := st.CreateKey(t.Context(),
			store.DefaultAccount, store.KeyFields{Name: fmt.Sprint("key ", step), Scope: "*"})
		must(t, err)
		for range 40 {
			r := activity.Request{
				Time: now().Add(-time.Duration(random.IntN(48)) * time.Hour), KeyID: k.ID, KeyName: k.Name,
				Deployment: []string{"", "m", "org/m:8b"}[random.IntN(3)],
				ErrorClass: []string{
					"", activity.CallerError, activity.PolicyError, activity.GatewayError,
					activity.UpstreamError,
				}[random.IntN(5)],
				InputTokens: random.IntN(1000), OutputTokens: random.IntN(1000), Estimated: random.IntN(2) == 0, BusyMillis: 5,
			}
			if random.IntN(2) == 0 {
				r.KeyID, r.KeyName = "key_shared", "shared"
			}
			log.Record(store.DefaultAccount, r)
			want.Requests++
			want.InputTokens += int64(r.InputTokens)
			want.OutputTokens += int64(r.OutputTokens)
			if r.ErrorClass != "" {
				want.CallerErrors++ // of any class
			}
			if random.IntN(10) == 0 {
				time.Sleep(time.Minute)
			}
		}
		if step%2 == 0 {
			must(t, errOf(st.RevokeKey(t.Context(), store.DefaultAccount, k.ID)))
			must(t, errOf(st.RemoveKey(t.Context(), store.DefaultAccount, k.ID)))
		}
		service := manage.New(manage.Options{Store: st, Activity: log, Observed: observed.New(now), Now: now})
		first, last := now().AddDate(0, 0, -365).UTC(), now().UTC()
		for _, by := range []string{"day", "key", "model", "user", "key,model", "model,day", "day,user,key,model"} {
			sums := usageOf(t, service, manage.Usage{From: first.Format(time.DateOnly), To: last.Format(time.DateOnly), By: by})
			got := sumOf(sums)
			if got.Requests != want.Requests || got.InputTokens != want.InputTokens || got.OutputTokens != want.OutputTokens ||
				got.Errors() != want.CallerErrors || got.BusyMillis != 5*want.Requests {
				t.Errorf("step %d, by %s: %+v, not %+v", step, by, got, want)
			}
			if !slices.IsSortedFunc(sums, func(a, b manage.UsageSum) int { return strings.Compare(a.Day, b.Day) }) {
				t.Errorf("by %s: not in order", by)
			}
		}
		// The hours of a day are the day.
		today := manage.Usage{From: last.Format(time.DateOnly), By: "day"}
		hours := manage.Usage{
			From: last.Format(time.DateOnly) + "T00", To: last.Format(time.DateOnly) + "T23",
			By: "hour,key",
		}
		if got, want := sumOf(usageOf(t, service, hours)), sumOf(usageOf(t, service, today)); got != want {
			t.Errorf("step %d: %+v by hour, %+v by day", step, got, want)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
		ahead += random.IntN(30)
	}
}

func TestUsage(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	id := want[map[string]any](g, 201, "POST", "/keys", `{"name":"@laptop","owner":"anna"}`)["id"].(string)
	now := time.Now().UTC()
	hour := func(ago int) string { return now.Add(-time.Duration(ago) * time.Hour).Format(store.HourOnly) }
	day := func(ago int) string { return now.AddDate(0, 0, -ago).Format(time.DateOnly) }
	record := func(ago int, key, name, model string) {
		g.activity.Record("default",
			activity.Request{
				Time: now.AddDate(0, 0, -ago), KeyID: key, KeyName: name, Deployment: model, InputTokens: 3,
				OutputTokens: 4, Estimated: true,
			})
	}
	record(0, id, "old name", "m")
	record(0, "key_gone", "=gone", "m")
	record(29, id, "old name", "")
	record(30, id, "old name", "m")
	for query, want := range map[string][]string{
		"":          {day(29) + "|||||1", day(0) + "|||||2"},
		"?by=day":   {day(29) + "|||||1", day(0) + "|||||2"},
		"?by=key":   {"||key_gone|=gone||1", "||" + id + "|@laptop||2"},
		"?by=model": {"|||||1", "||||m|2"},
		"?by=key,model": {
			"||key_gone|=gone|m|1", "||" + id + "|@laptop||1",
			"||" + id + "|@laptop|m|1",
		},
		"?by=model,day":                       {day(29) + "|||||1", day(0) + "||||m|2"},
		"?to=" + day(29) + "&from=" + day(30): {day(30) + "|||||1", day(29) + "|||||1"},
		"?to=" + day(60):                      nil,
		"?format=json&from=" + day(0):         {day(0) + "|||||2"},
		"?by=user":                            {"|||||1", "|anna||||2"},
		"?by=hour":                            {hour(0) + "|||||2"},
		"?by=hour,model&to=" + hour(1):        nil,
		"?by=model&from=" + hour(3):           {"||||m|2"},
		"?by=key&user=anna":                   {"||" + id + "|@laptop||2"},
		"?by=key&key=@laptop&model=m":         {"||" + id + "|@laptop||1"},
		"?by=key&key=key_gone":                {"||key_gone|=gone||1"},
		"?key=" + id + "&from=" + day(0):      {day(0) + "|||||1"},
		"?key=console":                        nil,
		"?key=key_unknown":                    nil,
	} {
		var got []string
		for _, u := range wantAs[[]manage.UsageSum](g, anna, 200, "GET", "/usage"+query, "") {
			got = append(got, fmt.Sprintf("%s|%s|%s|%s|%s|%d", u.Hour+u.Day, u.UserName, u.KeyID, u.KeyName, u.Model,
				u.Requests))
			if u.InputTokens != 3*u.Requests || u.OutputTokens != 4*u.Requests || u.EstimatedTokens != 7*u.Requests {
				t.Errorf("%s: %+v", query, u)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", query, got, want)
		}
	}
	for _, query := range []string{
		"?from=x", "?to=2026-02-30", "?from=" + day(366), "?from=" + day(1) + "&to=" + day(2), "?by=person",
		"?by=hour&from=" + day(0), "?from=" + hour(168), "?by=key,key", "?by=", "?from=", "?format=xml", "?days=7",
		"?by=day&by=key",
	} {
		wantAs[map[string]any](g, anna, 400, "GET", "/usage"+query, "")
	}
	for _, query := range []string{"?key=x", "?user=x"} {
		wantAs[map[string]any](g, anna, 404, "GET", "/usage"+query, "")
	}
	w := g.doAs(anna, "GET", "/usage?by=key,model&format=csv", "")
	rows, err := csv.NewReader(w.Body).ReadAll()
	if err != nil || w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/csv; charset=utf-8" ||
		w.Header().Get("Content-Disposition") != `attachment; filename="usage.csv"` {
		t.Fatalf("%d %v, %v", w.Code, w.Header(), err)
	}
	if len(rows) != 4 || !slices.Equal(rows[0][:9],
		[]string{"hour", "day", "user_id", "user_name", "key_id", "key_name", "model", "requests", "model_requests"}) ||
		rows[0][len(rows[0])-1] != "tokens_per_second_p5" || len(rows[1]) != len(rows[0]) {
		t.Errorf("%q", rows)
	}
	// Names are not formulas.
	if !slices.Equal(rows[1][:8], []string{"", "", "", "", "key_gone", "'=gone", "m", "1"}) || rows[2][5] != "'@laptop" {
		t.Errorf("%q", rows)
	}
}

// The percentiles of a sum are those of all of its requests, in JSON and CSV, and not those of other sums.
func TestUsagePercentiles(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	for i := range 100 {
		r := activity.Request{
			Time: time.Now().AddDate(0, 0, -i%3), Deployment: "m", InputTokens: 3, OutputTokens: 4, BusyMillis: 900,
			FirstTokenMillis: 100, TokensPerSecond: 41,
		}
		if i >= 90 {
			r.FirstTokenMillis, r.WaitMillis, r.TokensPerSecond = 3000, 5000, 0
		}
		g.activity.Record("default", r)
		r.Deployment, r.FirstTokenMillis, r.TokensPerSecond = "embed", 0, 0
		g.activity.Record("default", r)
	}
	sums := wantAs[[]manage.UsageSum](g, anna, 200, "GET", "/usage?by=model", "")
	if len(sums) != 2 || sums[0].Percentiles.SpeedP50 != 0 || sums[0].FirstTokenP95 != 0 || sums[0].WaitP95 < 4096 {
		t.Fatalf("%+v", sums)
	}
	for what, at := range map[string][3]float64{
		"first token p50": {64, sums[1].FirstTokenP50, 128}, "first token p95": {2048, sums[1].FirstTokenP95, 4096},
		"wait p50": {0, sums[1].WaitP50, 0}, "wait p95": {4096, sums[1].WaitP95, 8192},
		"speed p50": {27.4, sums[1].SpeedP50, 45.3}, "speed p5": {27.4, sums[1].SpeedP5, 45.3},
	} {
		if at[1] < at[0] || at[1] > at[2] {
			t.Errorf("%s is %v, not %v to %v", what, at[1], at[0], at[2])
		}
	}
	if sums[1].Usage.Percentiles() != sums[1].Percentiles {
		t.Errorf("the buckets have %+v, not %+v", sums[1].Usage.Percentiles(), sums[1].Percentiles)
	}
}
