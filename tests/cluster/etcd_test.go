// Package cluster tests the store in etcd against real servers. It is a module of its
// own: etcd's server has dependencies that Postern does not have.
package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/store/etcd"
	"github.com/postern-dev/postern/tests/rig"
)

// program returns the path of etcd, which the first test builds into .cache.
var program = sync.OnceValues(func() (string, error) {
	root, err := rig.Root()
	if err != nil {
		return "", err
	}
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "go.etcd.io/etcd/server/v3").Output()
	if err != nil {
		return "", fmt.Errorf("finding the version of etcd: %w", err)
	}
	path := filepath.Join(root, ".cache", "etcd-"+strings.TrimSpace(string(version)))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	unlock, err := rig.Lock(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "go.etcd.io/etcd/server/v3")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building etcd: %w\n%s", err, out)
	}
	return path, nil
})

const (
	patience = 2 * time.Minute // for what must happen, however slow the machine is
	oneTry   = 3 * time.Second // of poll
)

// servers are the members of an etcd cluster.
type servers []*server

type server struct {
	*rig.Process
	url string // for clients
}

// start starts a cluster of n members and waits until it serves. They have the flags in
// addition.
func start(t testing.TB, n int, flags ...string) servers {
	t.Helper()
	var all servers
	var initial []string
	peers := make([]string, n)
	for i := range n {
		peers[i] = "http://" + freeAddr(t)
		initial = append(initial, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	for i := range n {
		all = append(all, newServer(t, fmt.Sprintf("m%d", i), "http://"+freeAddr(t), peers[i], strings.Join(initial, ","), flags))
	}
	for _, s := range all {
		s.start(t)
	}
	all.wait(t)
	return all
}

func newServer(t testing.TB, name, url, peer, initial string, flags []string) *server {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	args := append([]string{
		"--name", name, "--data-dir", filepath.Join(dir, "data"), "--log-level", "warn",
		"--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", initial,
		"--unsafe-no-fsync", // the machine does not crash
	}, flags...)
	p, err := rig.NewProcess(dir, name, func() *exec.Cmd { return exec.Command(path, args...) })
	if err != nil {
		t.Fatal(err)
	}
	p.Ended = func(err error) { t.Error(err) }
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("last output of %s:\n%s", name, p.Tail())
		}
	})
	return &server{Process: p, url: url}
}

func (s *server) start(t testing.TB) {
	t.Helper()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
}

// urls returns the URLs of all members.
func (all servers) urls() (urls []string) {
	for _, s := range all {
		urls = append(urls, s.url)
	}
	return urls
}

// wait waits until the cluster answers.
func (all servers) wait(t testing.TB) {
	t.Helper()
	if all[0].url[:5] == "https" {
		return
	}
	c := all.client(t)
	defer c.Close()
	poll(t, "an answer of etcd", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, oneTry)
		defer cancel()
		_, err := c.Get(ctx, "x")
		return err
	})
}

// client returns a client of etcd's own, to look behind the store.
func (all servers) client(t testing.TB) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: all.urls(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// leader returns the member that leads.
func (all servers) leader(t testing.TB) *server {
	t.Helper()
	c := all.client(t)
	defer c.Close()
	var leader *server
	poll(t, "a leader", func(ctx context.Context) error {
		for _, s := range all {
			ctx, cancel := context.WithTimeout(ctx, oneTry)
			status, err := c.Status(ctx, s.url)
			cancel()
			if err == nil && status.Leader == status.Header.MemberId {
				leader = s
				return nil
			}
		}
		return fmt.Errorf("no member leads")
	})
	return leader
}

// open opens the store at these URLs and closes it when the test ends.
func open(t testing.TB, urls ...string) store.KV {
	t.Helper()
	kv, err := etcd.Open(t.Context(), etcd.Options{Endpoints: urls})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kv.Close() })
	return kv
}

func poll(t testing.TB, what string, probe func(context.Context) error) {
	t.Helper()
	if err := rig.Poll(t.Context(), patience, 20*time.Millisecond, what, probe); err != nil {
		t.Fatal(err)
	}
}

func freeAddr(t testing.TB) string {
	t.Helper()
	addr, err := rig.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
