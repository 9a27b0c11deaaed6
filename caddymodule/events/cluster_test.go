package events

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/tests/storetest"
)

// leading is a cluster in which this gateway may lead, or may have lost the store.
type leading struct {
	atomic.Bool
	lost atomic.Bool
}

func (l *leading) Reached(int64)                        {}
func (l *leading) Confirm(context.Context, int64) error { return nil }
func (l *leading) Leader() bool                         { return l.Load() }

func (l *leading) Serving() error  { return nil }
func (l *leading) MayRun() bool    { return true }
func (l *leading) InContact() bool { return !l.lost.Load() }

// follow opens the store of gateway i and records its events.
func follow(t *testing.T, kv store.KV, i int, lead *leading, out *recorder) (*store.Store, *sources) {
	t.Helper()
	st, err := store.New(storetest.Share(kv),
		store.Options{
			Edge: string(rune('a' + i)), Own: storetest.OpenBolt(t, filepath.Join(t.TempDir(), "edge.db")),
			Cluster: lead,
		})
	must(t, err)
	s := newSources(st, out.add)
	t.Cleanup(func() {
		s.close()
		_ = st.Close()
	})
	return st, s
}

// followTwo opens the stores of two gateways of a cluster and records their events.
func followTwo(t *testing.T) (lead *[2]leading, out *[2]recorder, stores [2]*store.Store, gateways [2]*sources) {
	t.Helper()
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
	lead, out = new([2]leading), new([2]recorder)
	for i := range stores {
		stores[i], gateways[i] = follow(t, kv, i, &lead[i], &out[i])
	}
	return lead, out, stores, gateways
}

// Only the leader emits the events of the store. A new leader repeats the latest ones with the same
// ids.
func TestEventsOfACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lead, out, stores, _ := followTwo(t)
		key := func() {
			t.Helper()
			must(t, errOf(stores[1].CreateKey(t.Context(),
				store.DefaultAccount, store.KeyFields{Name: rand.Text(), Scope: "*"})))
			synctest.Wait()
		}
		lead[0].Store(true)
		key() // the new leader does not repeat it: it is too old
		time.Sleep(takeover)
		key()
		first := out[0].events
		if len(first) != 2 || first[0].Data["id"] == first[1].Data["id"] {
			t.Fatalf("the leader emits %v", first)
		}
		out[1].expect(t, "without the lead")
		lead[0].Store(false)
		lead[1].Store(true)
		if err := stores[0].AddEdge(t.Context(), store.Edge{Name: "a"}); err != nil { // as when a report ends
			t.Fatal(err)
		}
		synctest.Wait()
		if again := out[1].events; len(again) != 1 || again[0].Data["id"] != first[1].Data["id"] {
			t.Errorf("the new leader emits %v, not again %v", again, first[1])
		}
		out[1].take()
		key()
		out[1].expect(t, "the lead", eventKeyCreated)
		if got := out[0].events; len(got) != 2 {
			t.Errorf("the former leader emits %v", got)
		}
	})
}

// All gateways notice that a connector comes and goes, and only the leader emits that.
func TestConnectorsOfACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lead, out, _, gateways := followTwo(t)
		hub := tunnel.NewHub(tunnel.Options{})
		lead[0].Store(true)
		is := func(online bool) {
			for _, s := range gateways {
				s.onTunnel(hub, tunnel.Event{Online: online, Connector: "con_1", Account: store.DefaultAccount})
			}
			if !online {
				time.Sleep(offlineAfter + lostAfter)
			}
			time.Sleep(time.Second)
		}
		is(true)
		first := out[0].events[0]
		out[0].expect(t, "a connector that comes", eventConnectorOnline)
		is(false)
		out[0].expect(t, "a connector that goes", eventConnectorOffline)
		out[1].expect(t, "without the lead")
		lead[0].Store(false)
		lead[1].Store(true)
		is(true)
		if again := out[1].events[0]; again.Data["id"] != first.Data["id"] {
			t.Errorf("the new leader emits %v, not again %v", again, first)
		}
		out[1].expect(t, "the lead", eventConnectorOnline, eventConnectorOffline, eventConnectorOnline)
		out[0].expect(t, "the former leader")

		cut := func(lost bool) {
			for _, s := range gateways {
				s.onTunnel(hub, tunnel.Event{Online: !lost, Connector: "con_1", Account: store.DefaultAccount})
			}
		}
		cut(true)
		time.Sleep(lostAfter)
		lead[1].lost.Store(true)
		time.Sleep(time.Minute)
		lead[1].lost.Store(false)
		time.Sleep(offlineAfter)
		cut(false)
		time.Sleep(time.Minute)
		out[1].expect(t, "a line of its own that was cut")
	})
}

// All gateways notice that a key expires, and the leader emits that, with another id for each notice.
func TestKeysExpireInACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lead, out, stores, _ := followTwo(t)
		lead[0].Store(true)
		const day = 24 * time.Hour
		end := time.Now().Add(10 * day).UTC()
		_, _, err := stores[1].CreateKey(t.Context(),
			store.DefaultAccount, store.KeyFields{Name: "k", Scope: "*", ExpiresAt: &end})
		must(t, err)
		time.Sleep(11 * day)
		synctest.Wait()
		ids := map[any]bool{}
		for _, e := range out[0].events {
			ids[e.Data["id"]] = true
			if e.Data["expires_at"] != end.Truncate(time.Second).Format(time.RFC3339) {
				t.Errorf("data %v", e.Data)
			}
		}
		if len(ids) != 4 {
			t.Errorf("the events have the ids %v", ids)
		}
		out[0].expect(t, "the leader", eventKeyCreated, eventKeyExpiring, eventKeyExpiring, eventKeyExpired)
		out[1].expect(t, "the other")
	})
}
