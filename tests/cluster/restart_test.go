package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
)

// copied waits until the gateway's copy of the store is newer than now.
func (g *gateway) copied(t *testing.T) {
	t.Helper()
	now := time.Now()
	harness.Poll(t, limit, "a copy of the store", func(context.Context) error {
		paths, err := filepath.Glob(filepath.Join(g.Dir, "data", "caddy", "model_gateway", "edge-copy-*.db"))
		if err != nil || len(paths) != 1 {
			return fmt.Errorf("%d copies, %w", len(paths), err)
		}
		info, err := os.Stat(paths[0])
		if err == nil && !info.ModTime().After(now) {
			err = errors.New("it is old")
		}
		return err
	})
}

// TestGatewayRestartedWithoutEtcd kills a gateway while etcd is down. It serves when it is started
// again, with its connector, as long as the other one does.
func TestGatewayRestartedWithoutEtcd(t *testing.T) {
	t.Parallel()
	etcd := start(t, 1)
	a, b := startGateway(t, "a", etcd.urls()...), startGateway(t, "b", etcd.urls()...)
	id, key := a.Key(t, "key", "*")
	gone, revoked := a.Key(t, "revoked", "*")
	for _, g := range []*gateway{a, b} {
		g.await(t, g.Client(t, key), http.StatusOK, "the model at "+g.name)
	}
	if _, stderr, code := a.Run(t, "key", "revoke", gone); code != 0 {
		t.Fatalf("key revoke: exit code %d, %s", code, stderr)
	}
	b.copied(t)
	l := startLoad(t, key, a)
	etcd[0].Kill()
	b.Process.Signal(t, syscall.SIGKILL)
	b.Process.WaitExit(t, limit)
	b.Restart(t)
	b.await(t, b.Client(t, key), http.StatusOK, "the model at b, without etcd")
	if status := b.chat(t, b.Client(t, revoked)); status != http.StatusUnauthorized {
		t.Errorf("b without etcd: status %d for a revoked key", status)
	}
	if _, stderr, code := b.Run(t, "key", "create", "late"); code == 0 {
		t.Errorf("key create without etcd: exit code 0, %s", stderr)
	}
	l.wait(&l.taken, 10, "requests at a")
	etcd[0].start(t)
	a.revoke(t, id)
	l.revoked.Store(true)
	l.wait(&l.refused, 5, "refused requests at a")
	l.end()
	b.await(t, b.Client(t, key), http.StatusUnauthorized, "b with etcd")
}
