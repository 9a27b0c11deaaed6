package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

const minutes = 5 * time.Minute // a OnStoreLoss

// leave has an edge leave the cluster and end.
func (r *rig) leave(e *edge) {
	r.Helper()
	if err := e.cluster.Leave(r.Context()); err != nil {
		r.Fatal(err)
	}
	r.forget(e)
	e.line.die()
	_ = e.Close()
}

func (r *rig) forget(e *edge) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.edges, e.name)
}

// fromCopy starts edge b from its copy of the store, without contact.
func (r *rig) fromCopy() *edge {
	r.Helper()
	l := newLine(r.kv)
	l.set(false)
	e, err := r.startOver(l, "b", "b", minutes)
	if err != nil {
		r.Fatal(err)
	}
	return e
}

// until waits until f is true.
func (r *rig) until(f func() bool) {
	r.Helper()
	for end := time.Now().Add(time.Hour); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatal("waited for an hour")
		}
	}
}

// refuses revokes a key at one edge. If that is confirmed, another one must not accept it.
func (r *rig) refuses(at *edge, id string, other *edge, secret string) (confirmed bool) {
	r.Helper()
	_, err := at.RevokeKey(r.Context(), store.DefaultAccount, id)
	if err == nil && other.accepts(secret) {
		r.Errorf("%s accepts a key that %s has revoked", other.name, at.name)
	}
	return err == nil
}

// TestLoans has an edge serve on the time of a peer, when that peer gets contact and revokes a key,
// leaves, gets another electorate, or starts again under another name.
func TestLoans(t *testing.T) {
	for name, test := range map[string]func(r *rig, a, p, b *edge, id, secret string){
		"the lender revokes": func(r *rig, a, p, b *edge, id, secret string) {
			a.line.set(false)
			r.until(func() bool { return b.accepts(secret) })
			p.line.set(true)
			a.line.set(true)
			r.refuses(p, id, b, secret)
		},
		"the lender leaves": func(r *rig, a, p, b *edge, id, secret string) {
			r.until(func() bool { return b.accepts(secret) })
			p.line.set(true)
			go func() { _ = p.cluster.Leave(r.Context()) }()
			time.Sleep(100 * time.Millisecond)
			r.refuses(a, id, b, secret)
		},
		"the lender has another electorate": func(r *rig, a, p, b *edge, id, secret string) {
			a.line.set(false)
			time.Sleep(20 * time.Second)
			v := r.start("v", minutes)
			r.start("w", minutes)
			time.Sleep(5 * time.Second)
			p.line.set(true)
			e, _ := v.FindEdge("p")
			r.until(func() bool { now, _ := v.FindEdge("p"); return now.Revision != e.Revision })
			r.refuses(v, id, b, secret)
		},
		"the lender is renamed": func(r *rig, a, p, b *edge, id, secret string) {
			r.until(func() bool { return b.accepts(secret) })
			r.forget(p)
			p.stop()
			go func() { _, _ = r.startOver(newLine(r.kv), "p2", "p", minutes) }()
			r.until(func() bool { _, ok := a.FindEdge("p"); return !ok })
			r.refuses(a, id, b, secret)
			time.Sleep(time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.delay = 20 * time.Millisecond
				a, p, b := r.start("a", minutes), r.start("p", minutes), r.start("b", minutes)
				id, secret := r.key(a)
				time.Sleep(20 * time.Second) // until the copy is current
				r.leave(b)
				time.Sleep(10 * time.Second)
				p.line.set(false)
				test(r, a, p, r.fromCopy(), id, secret)
			})
		})
	}
}

// TestTakeover has another machine take the name of an edge that still serves without the store.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.delay = 20 * time.Millisecond
		a, p, x := r.start("a", minutes), r.start("p", minutes), r.start("x", minutes)
		id, secret := r.key(a)
		time.Sleep(20 * time.Second)
		cut := time.Now()
		p.line.set(false)
		x.line.set(false)
		time.Sleep(30 * time.Second)
		other, err := r.startOver(newLine(r.kv), "p", "another", minutes)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; !r.refuses(a, id, x, secret) && i < 100; i++ {
			if p.accepts(secret) && other.Serving() == nil {
				t.Fatal("both edges of the name serve")
			}
		}
		if time.Since(cut) < 4*time.Minute {
			t.Errorf("confirmed after %v", time.Since(cut))
		}
		r.until(func() bool { return other.Serving() == nil })
		p.line.set(true)
		time.Sleep(time.Minute)
		_ = p.cluster.Leave(t.Context()) // it must not take the record of the other with it
		p.line.die()
		_ = p.Close()
		if e, _ := a.FindEdge("p"); e.Instance != "another" || e.Report == nil || other.Serving() != nil {
			t.Errorf("after the old edge has left: %+v, %v", e, other.Serving())
		}
	})
}

// TestRecordGone removes the record of an edge with contact, which joins again.
func TestRecordGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.start("a", minutes), r.start("b", minutes)
		id, secret := r.key(a)
		time.Sleep(20 * time.Second)
		if _, err := r.kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Delete("edges/b"), store.Delete("edge_reports/b")}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		b.line.set(false)
		if r.refuses(a, id, b, secret) {
			t.Error("confirmed by an edge without contact")
		}
	})
}

// TestOtherStore starts an edge from the copy of a store that was lost and restored, with other
// revisions. No edge of the new one lends it time.
func TestOtherStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.delay = 20 * time.Millisecond
		a, b := r.start("a", minutes), r.start("b", minutes)
		for range 50 {
			r.key(a)
		}
		time.Sleep(20 * time.Second)
		secretOf := func(e *edge) string {
			key, err := e.Secret(t.Context(), store.SecretPeer, func() ([]byte, error) { return []byte(time.Now().String()), nil })
			if err != nil {
				t.Fatal(err)
			}
			return string(key)
		}
		before := secretOf(b)
		b.stop()
		backup := t.TempDir() + "/backup.db"
		if err := store.CopyToBolt(t.Context(), r.kv, backup); err != nil {
			t.Fatal(err)
		}
		r.leave(a)
		_ = r.kv.Close()
		other, err := store.OpenBolt(t.TempDir()+"/gateway.db", store.BoltOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.RestoreKV(t.Context(), backup, other); err != nil {
			t.Fatal(err)
		}
		r.kv = storetest.WithLeases(other)
		if secretOf(r.start("a", minutes)) == before {
			t.Error("the edges of both stores know each other")
		}
	})
}
