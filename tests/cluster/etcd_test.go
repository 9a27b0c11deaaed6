// Package cluster tests the store in etcd against real servers. It is a separate
// module, because etcd's server has dependencies that Postern does not need.
package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/postern-dev/postern/caddymodule/cluster/etcd"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig"
)

const (
	patience = 2 * time.Minute // limit for necessary steps on a slow machine
	oneTry   = 3 * time.Second // limit for one attempt of a poll
)

// servers are the members of an etcd cluster.
type servers []*server

type server struct {
	*rig.Process
	url string // for clients
}

// start starts a cluster of n members with additional flags and waits until it serves.
func start(t testing.TB, n int, flags ...string) servers {
	t.Helper()
	var all servers
	var initial []string
	peers := make([]string, n)
	for i := range n {
		peers[i] = "http://" + harness.FreeAddr(t)
		initial = append(initial, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	for i := range n {
		url := "http://" + harness.FreeAddr(t)
		all = append(all, newServer(t, fmt.Sprintf("m%d", i), url, peers[i], strings.Join(initial, ","), flags))
	}
	for _, s := range all {
		s.start(t)
	}
	all.wait(t)
	return all
}

func newServer(t testing.TB, name, url, peer, initial string, flags []string) *server {
	t.Helper()
	dir := t.TempDir()
	command, err := rig.EtcdMember{Name: name, URL: url, Peer: peer, Initial: initial}.Command(dir, flags...)
	must(t, err)
	p, err := rig.NewProcess(dir, name, command)
	must(t, err)
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
	must(t, s.Start())
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
	harness.Poll(t, patience, "an answer of etcd", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, oneTry)
		defer cancel()
		_, err := c.Get(ctx, "x")
		return err
	})
}

// client returns a client of etcd, for checks that bypass the store.
func (all servers) client(t testing.TB) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: all.urls(), Logger: zap.NewNop()})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// leader returns the leader.
func (all servers) leader(t testing.TB) *server {
	t.Helper()
	c := all.client(t)
	defer c.Close()
	var leader *server
	harness.Poll(t, patience, "a leader", func(ctx context.Context) error {
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
	must(t, err)
	t.Cleanup(func() { kv.Close() })
	return kv
}
