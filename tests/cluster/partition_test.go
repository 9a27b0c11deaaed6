package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/store"
)

// lines are what a member of an etcd cluster sends to other members and receives from them.
// Clients reach the member without them.
type lines struct{ in, out *proxy }

// cut loses all packets without closing a connection.
func (l lines) cut() {
	l.in.swallow.Store(true)
	l.out.swallow.Store(true)
}

// startOnLines starts a cluster of three members, each with its lines.
func startOnLines(t *testing.T) (servers, map[*server]lines) {
	t.Helper()
	// Members use a proxy of HTTP, which the environment names, for addresses that are not of
	// the loopback interface. A connection to 0.0.0.0 goes there nevertheless.
	forward := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(*httputil.ProxyRequest) {},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // connections end when their members do
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(forward.Close)
	var all servers
	var peers, initial []string
	on := map[*server]lines{}
	var ins []*proxy
	for i := range 3 {
		peer := "http://" + freeAddr(t)
		in := newProxy(t, &server{url: peer})
		peers, ins = append(peers, peer), append(ins, in)
		initial = append(initial, fmt.Sprintf("m%d=%s", i, advertised(in)))
	}
	for i, in := range ins {
		s := newServer(t, fmt.Sprintf("m%d", i), "http://"+freeAddr(t), peers[i], strings.Join(initial, ","),
			[]string{"--initial-advertise-peer-urls", advertised(in)})
		out := newProxy(t, &server{url: forward.URL})
		s.Env = []string{"HTTP_PROXY=" + out.url, "NO_PROXY="}
		all, on[s] = append(all, s), lines{in, out}
	}
	for _, s := range all {
		s.start(t)
	}
	all.wait(t)
	return all, on
}

func advertised(in *proxy) string { return strings.Replace(in.url, "127.0.0.1", "0.0.0.0", 1) }

// TestMemberCutOff cuts one member off from the two others. Clients still reach it.
func TestMemberCutOff(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"leader", "follower"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			all, on := startOnLines(t)
			kv := open(t, all.urls()...)
			during := startWriters(t, kv, 2)
			during.goOn()
			away := all.leader(t)
			if role == "follower" {
				away = all[slices.IndexFunc(all, func(s *server) bool { return s != away })]
			}
			on[away].cut()
			away.knowsNoLeader(t)
			during.goOn() // after an election
			during.end(kv)
			checkLatency(t, kv)
		})
	}
}

// knowsNoLeader waits until a member has noticed that it is cut off.
func (s *server) knowsNoLeader(t *testing.T) {
	t.Helper()
	c := servers{s}.client(t)
	poll(t, "a member without a leader", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, oneTry)
		defer cancel()
		if _, err := c.Get(clientv3.WithRequireLeader(ctx), "x"); !errors.Is(err, rpctypes.ErrNoLeader) {
			return fmt.Errorf("its answer: %w", err)
		}
		return nil
	})
}

// checkLatency checks that writes succeed, and 99 of 100 within a second.
func checkLatency(t *testing.T, kv store.KV) {
	t.Helper()
	const writing, each = 2, 500
	took := make([]time.Duration, writing*each)
	var all sync.WaitGroup
	for i := range writing {
		all.Go(func() {
			for n := range each {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // as for a change by a user
				begin := time.Now()
				result, err := kv.Txn(ctx, store.Txn{Then: []store.Op{store.Put(fmt.Sprintf("p/%d", i), nil)}})
				cancel()
				if took[i*each+n] = time.Since(begin); err != nil || !result.Succeeded {
					t.Errorf("write %d after %v: %+v, %v", n, took[i*each+n], result, err)
					return
				}
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	p50, p99 := took[len(took)/2], took[len(took)*99/100]
	t.Logf("p50 %v, p99 %v, max %v", p50, p99, took[len(took)-1])
	if p99 > time.Second {
		t.Errorf("p99 of writes is %v", p99)
	}
}
