package activity

import (
	"bytes"
	"context"
	"time"

	bolt "go.etcd.io/bbolt"
)

// ConnectorHour is what passed through a connector in an hour, at this gateway.
type ConnectorHour struct {
	Start    time.Time `json:"start"`
	Requests int64     `json:"requests"`
	Failed   int64     `json:"failed"`
}

// Connector returns the hours of the last day in which requests went through a connector, the oldest first. caller is
// as in [Query].
func (l *Log) Connector(ctx context.Context, account, id, caller string) (hours []ConnectorHour, err error) {
	first := time.Now().UTC().Truncate(time.Hour).Add(-23 * time.Hour)
	s, day := newSearch(&Query{Connector: id, From: first}), [24]ConnectorHour{}
	count := func(at time.Time, failed bool, n int) {
		h := &day[min(int(at.Sub(first)/time.Hour), 23)]
		if h.Requests += int64(n); failed {
			h.Failed += int64(n)
		}
	}
	for _, r := range l.unsavedOf(account) { // first, as in Find
		if s.seen[r.cursor()] = true; s.q.Matches(r) {
			count(r.Time, r.Outcome() == Failed, r.Count())
		}
	}
	err = l.search(ctx, account, caller, func(_ time.Time, b *bolt.Bucket) {
		if b == nil {
			return
		}
		c := b.Cursor()
		for k, v := c.Seek([]byte(cursor(first, ""))); k != nil && !bytes.Equal(k, keyRemoved); k, v = c.Next() {
			if s.seen[string(k)] || !s.mayMatch(k, v) {
				continue
			}
			n := 1
			if bytes.Contains(v, []byte(`"refusals":`)) {
				r, _ := decode(k, v)
				n = r.Count()
			}
			count(timeOf(string(k)), v[0] == Failed[0], n)
		}
	})
	for i, h := range day {
		if h.Start = first.Add(time.Duration(i) * time.Hour); h.Requests > 0 {
			hours = append(hours, h)
		}
	}
	return hours, err
}
