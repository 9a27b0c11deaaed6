package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/harness"
)

// startPair starts two edges that ask each other whether they have lost etcd, and go on for
// storeLoss if so.
func startPair(t *testing.T, etcd servers, storeLoss time.Duration) (a, b *gateway) {
	t.Helper()
	name := func(name string) string { return fmt.Sprintf("%s\n on_store_loss %v", name, storeLoss) }
	a, b = startGateway(t, name("a"), etcd.urls()...), startGateway(t, name("b"), etcd.urls()...)
	client := etcd.client(t)
	poll(t, "the electorates of both", func(ctx context.Context) error {
		records, err := client.Get(ctx, "postern/edges/", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		for _, r := range records.Kvs {
			var edge store.Edge
			if err := json.Unmarshal(r.Value, &edge); err != nil || len(edge.Electorate) != 2 {
				return fmt.Errorf("%s, %w", r.Value, err)
			}
		}
		return nil
	})
	return a, b
}

// TestStoreDown stops etcd for less than on_store_loss: no request fails, and writes are refused.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	down, keys := time.Minute, 200
	if testing.Short() {
		down, keys = 15*time.Second, 40
	}
	etcd := start(t, 1)
	a, b := startPair(t, etcd, 5*time.Minute)
	_, key := a.Key(t, "key", "*")
	for _, g := range []*gateway{a, b} {
		g.await(t, g.Client(t, key), http.StatusOK, "the model at "+g.name)
	}
	for i := range keys { // a key is valid at once at the other edge
		_, key := a.Key(t, fmt.Sprint("key-", i), "*")
		if status := b.chat(t, b.Client(t, key)); status != http.StatusOK {
			t.Fatalf("key %d that a has just made: status %d at b", i, status)
		}
	}
	const attempts = 3
	for i := range attempts {
		lost, still := outage(t, etcd, key, down, a, b)
		if lost == 0 {
			break
		}
		// A gateway stops when its peer's answer takes 2 s, as it does if the machine stands still.
		if still < time.Second {
			t.Fatalf("%d requests were refused without etcd; the machine stood still for %v at most", lost, still)
		}
		t.Logf("attempt %d of %d: %d requests were refused, the machine stood still for %v", i+1, attempts, lost, still)
	}
	id, key := a.Key(t, "up", "*")
	if status := b.chat(t, b.Client(t, key)); status != http.StatusOK {
		t.Errorf("a key with etcd again: status %d at b", status)
	}
	if _, stderr, code := b.Run(t, "key", "revoke", id); code != 0 {
		t.Errorf("key revoke: exit code %d, %s", code, stderr)
	}
	if status := a.chat(t, a.Client(t, key)); status != http.StatusUnauthorized {
		t.Errorf("a revoked key at a: status %d", status)
	}
}

// outage stops etcd for a time, under requests. It returns how many of them were refused without
// the store, and for how long the machine stood still at most.
func outage(t *testing.T, etcd servers, key string, down time.Duration, a, b *gateway) (lost int64, still time.Duration) {
	for _, g := range []*gateway{a, b} {
		g.await(t, g.Client(t, key), http.StatusOK, "requests at "+g.name)
	}
	l := startLoad(t, key, a, b)
	stop := standstill()
	etcd[0].Kill()
	ended, before := time.After(down), l.taken.Load()
	refused := make(chan error)
	go func() {
		_, _, err := a.Gateway.Gateway.Key(t.Context(), "down", "*")
		refused <- err
	}()
	if _, stderr, code := b.Run(t, "key", "create", "--name", "down"); code != 1 || !strings.Contains(stderr, "did not answer") {
		t.Errorf("key create at b without etcd: exit code %d, %s", code, stderr)
	}
	err := <-refused
	if status := (*harness.StatusError)(nil); !errors.As(err, &status) || status.Status != http.StatusServiceUnavailable || !strings.Contains(status.Text, "did not answer") {
		t.Errorf("creating a key at a without etcd: %v", err)
	}
	<-ended
	if l.taken.Load() == before {
		t.Error("no request was answered without etcd")
	}
	etcd[0].start(t)
	etcd.wait(t)
	l.wait(&l.taken, 10, "requests with etcd")
	again, _ := a.Key(t, "again", "*")
	a.revoke(t, again) // all edges have etcd again
	lost, still = l.lost.Swap(0), stop()
	l.end()
	return lost, still
}

// standstill watches for standstills of the machine until stop is called, which returns the
// longest.
func standstill() (stop func() time.Duration) {
	end, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		var still time.Duration
		for last := time.Now(); ; {
			select {
			case <-end:
				longest <- still
				return
			case <-time.After(50 * time.Millisecond):
				still, last = max(still, time.Since(last)), time.Now()
			}
		}
	}()
	return func() time.Duration {
		close(end)
		return <-longest
	}
}

// TestStoreDownForLong stops etcd for longer than on_store_loss, which a reload does not change.
func TestStoreDownForLong(t *testing.T) {
	t.Parallel()
	storeLoss := 20 * time.Second
	if testing.Short() {
		storeLoss = 12 * time.Second
	}
	etcd := start(t, 1)
	a, b := startPair(t, etcd, storeLoss)
	_, key := a.Key(t, "key", "*")
	var streams []<-chan struct{}
	both := []*gateway{a, b}
	for _, g := range both {
		g.await(t, g.Client(t, key), http.StatusOK, "the model at "+g.name)
		streams = append(streams, g.stream(t, g.Client(t, key)))
	}
	etcd[0].Kill()
	for i, g := range both {
		g.await(t, g.Client(t, key), http.StatusServiceUnavailable, "a refusal at "+g.name)
		select {
		case <-streams[i]:
		case <-time.After(limit):
			t.Errorf("a stream at %s goes on", g.name)
		}
	}
	etcd[0].start(t)
	for _, g := range both {
		g.await(t, g.Client(t, key), http.StatusOK, "requests with etcd at "+g.name)
	}
	a.Configure(t, inEtcd("a\n on_store_loss deny", etcd.urls()...))
	if err := a.Gateway.Gateway.Reload(); err == nil || !strings.Contains(err.Error(), "a reload cannot change them, so restart the gateway") {
		t.Errorf("a reload with another on_store_loss: %v", err)
	}
	if status := a.chat(t, a.Client(t, key)); status != http.StatusOK {
		t.Errorf("after a reload that was refused: status %d at a", status)
	}
}
