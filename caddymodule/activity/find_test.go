package activity_test

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/tests/storetest"
)

// queries select requests of mixed.
func queries(now time.Time) map[string]activity.Query {
	return map[string]activity.Query{
		"all": {}, "keys": {Keys: []string{"key_b", "key_a"}}, "no keys": {Keys: []string{}},
		"console": {Keys: []string{"console"}},
		"model":   {Model: `a "quoted" \\ m<odel>`}, "model of none": {Model: "quoted"}, "connector": {Connector: "con_ü"},
		"answered": {Outcome: activity.Answered}, "failed": {Outcome: activity.Failed}, "id": {ID: "req_17"},
		"part of an id": {ID: "req_"}, "text": {Text: "REQ_1"}, "quoted text": {Text: `"QUOTED" \\`},
		"wide text":             {Text: "GROß ü"},
		"a text of two letters": {Text: "Ü M"}, "a name of JSON": {Text: "duration_ms"}, "a number": {Text: "200"},
		"from": {From: now.Add(-time.Minute)}, "to": {To: now.Add(-2 * time.Minute)},
		"between": {
			From: now.Add(-2 * time.Minute), To: now.Add(-time.Minute),
			Keys: []string{"key_a"}, Outcome: activity.Answered,
		},
	}
}

// mixed returns some request.
func mixed(i int, random *rand.Rand) activity.Request {
	r := request(i)
	r.KeyID = []string{"key_a", "key_b", "key_c", ""}[random.IntN(4)]
	if r.KeyID == "" {
		r.Operation = activity.Playground
	}
	r.Deployment = []string{"plain", `a "quoted" \\ m<odel>`, "groß Ü model", "bad \xff utf8"}[random.IntN(4)]
	r.Connector = []string{"con_1", "con_ü", ""}[random.IntN(3)]
	if random.IntN(4) == 0 {
		r.ErrorClass, r.Status = activity.UpstreamError, 502
	}
	return r
}

// Pages have the requests that a query matches, once and in order, wherever they are.
func TestPages(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "activity.db")
	synctest.Test(t, func(t *testing.T) {
		l, random := newLog(t, activity.Options{Store: storetest.New(t), Path: path}), rand.New(rand.NewPCG(1, 2))
		for i := range 400 {
			l.Record(account, mixed(i, random))
			l.Record("other", mixed(1000+i, random))
			if i%3 == 0 {
				time.Sleep(time.Second)
			}
		}
		all := find(t, l, activity.Query{Limit: 1000}).Requests
		if len(all) != 400 {
			t.Fatalf("%d requests", len(all))
		}
		for name, q := range queries(time.Now()) {
			var got, want []string
			for _, r := range all {
				if q.Matches(&r) {
					want = append(want, r.ID)
				}
			}
			for pages := 0; pages == 0 || q.Before != ""; pages++ {
				q.Limit = 1 + random.IntN(60)
				found := find(t, l, q)
				if len(found.Requests) > q.Limit {
					t.Fatalf("%s: %d requests on a page of %d", name, len(found.Requests), q.Limit)
				}
				for _, r := range found.Requests {
					got = append(got, r.ID)
				}
				q.Before = found.Next
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s:\n%q, not\n%q", name, got, want)
			}
			none := name == "no keys" || name == "model of none" || name == "part of an id" || name == "a name of JSON"
			if none != (len(want) == 0) {
				t.Errorf("%s selects %d requests", name, len(want))
			}
		}
	})
}
