package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/upstream"
)

const limit = 60 * time.Second

// gateway is an edge in a process, with a connector that has its tunnel there. Both have a
// model server, and "m-NAME" is the model of this edge.
type gateway struct {
	*harness.Gateway
	name string
	con  *harness.Connector
	up   *upstream.Server
}

// inEtcd returns the options of a gateway with its store in etcd. name is followed by further
// options of its edge.
func inEtcd(name string, urls ...string) harness.Options {
	return harness.Options{Storage: "etcd {\n endpoints " + strings.Join(urls, " ") + "\n}", App: "edge {\n name " + name + "\n peer $UDP\n}"}
}

// startGateway starts an edge, its connector and the model server. name is as for inEtcd.
func startGateway(t *testing.T, name string, urls ...string) *gateway {
	t.Helper()
	o := inEtcd(name, urls...)
	name, _, _ = strings.Cut(name, "\n")
	g := &gateway{Gateway: harness.Start(t, o), name: name, up: upstream.Start(t)}
	g.up.Handle("", func(x *upstream.Exchange) {
		if strings.Contains(string(x.Request.Body), `"stream":true`) {
			upstream.SlowTokens(20*time.Millisecond, nil)(x)
		} else {
			upstream.Echo(x)
		}
	})
	g.con = g.Connector(t, "box-"+name, g.up.URL)
	g.Deploy(t, "m-"+name, "box-"+name, "", "m")
	return g
}

// chat sends a request for the model of the edge and returns the status.
func (g *gateway) chat(t *testing.T, client *harness.Client) int {
	t.Helper()
	a := client.Post(t, harness.Chat("m-"+g.name, ""))
	return a.Status
}

// await waits until a request at the edge has this status.
func (g *gateway) await(t *testing.T, client *harness.Client, status int, what string) {
	t.Helper()
	harness.Poll(t, limit, what, func(context.Context) error {
		if got := g.chat(t, client); got != status {
			return fmt.Errorf("status %d at %s", got, g.name)
		}
		return nil
	})
}

// revoke revokes a key, again until all edges confirm it.
func (g *gateway) revoke(t *testing.T, id string) {
	t.Helper()
	harness.Poll(t, limit, "a confirmed revocation", func(context.Context) error {
		if _, stderr, code := g.Run(t, "key", "revoke", id); code != 0 {
			return fmt.Errorf("exit code %d, %s", code, stderr)
		}
		return nil
	})
}

// load sends requests to gateways with a key, one after the other, until stop is called. Each
// that began after a revocation must be refused.
type load struct {
	t       *testing.T
	revoked atomic.Bool // the revocation has returned
	taken   atomic.Int64
	refused atomic.Int64
	lost    atomic.Int64 // refused without the store
	stop    chan struct{}
	running sync.WaitGroup
}

func startLoad(t *testing.T, key string, gateways ...*gateway) *load {
	l := &load{t: t, stop: make(chan struct{})}
	for _, g := range gateways {
		for range 2 {
			client := g.Client(t, key)
			l.running.Go(func() { l.run(g, client) })
		}
	}
	return l
}

func (l *load) run(g *gateway, client *harness.Client) {
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		revoked := l.revoked.Load()
		a, err := client.Send(client.Request(context.Background(), l.t, http.MethodPost, "/v1/chat/completions", harness.Chat("m-"+g.name, "")))
		switch {
		case err != nil:
			l.t.Errorf("a request at %s: %v", g.name, err)
			return
		case a.Status == http.StatusUnauthorized:
			l.refused.Add(1)
		case revoked:
			l.t.Errorf("%s has taken a request with a revoked key: status %d", g.name, a.Status)
		case a.Status == http.StatusOK:
			l.taken.Add(1)
		case a.Status == http.StatusServiceUnavailable && strings.Contains(a.Body, "lost its store"):
			l.lost.Add(1)
		default:
			l.t.Errorf("a request at %s: status %d, %s", g.name, a.Status, a.Body)
		}
	}
}

// wait waits until the counter has grown by n.
func (l *load) wait(counter *atomic.Int64, n int64, what string) {
	l.t.Helper()
	to := counter.Load() + n
	harness.Poll(l.t, limit, what, func(context.Context) error {
		if now := counter.Load(); now < to {
			return fmt.Errorf("%d of %d requests", now, to)
		}
		return nil
	})
}

// end stops the requests. None may have been refused without the store.
func (l *load) end() {
	l.t.Helper()
	close(l.stop)
	l.running.Wait()
	if n := l.lost.Load(); n > 0 {
		l.t.Errorf("%d requests were refused without the store", n)
	}
}

// stream opens a stream at the edge that does not end by itself. ended is closed when it has
// ended.
func (g *gateway) stream(t *testing.T, client *harness.Client) (ended <-chan struct{}) {
	t.Helper()
	s := client.Stream(t, harness.Chat("m-"+g.name, `,"stream":true`))
	for range 2 {
		if _, err := s.Next(); err != nil {
			t.Fatalf("a stream at %s: %v", g.name, err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.Rest()
	}()
	return done
}

// TestRevoke: what one gateway revokes, no gateway takes when the command has returned, and the
// streams with it end.
func TestRevoke(t *testing.T) {
	t.Parallel()
	rounds := 200
	if testing.Short() {
		rounds = 4
	}
	etcd := start(t, 1)
	a, b := startGateway(t, "a", etcd.urls()...), startGateway(t, "b", etcd.urls()...)
	_, other := a.Key(t, "other", "*")
	for _, g := range []*gateway{a, b} {
		g.await(t, g.Client(t, other), http.StatusOK, "the models at "+g.name)
	}
	keeps := startLoad(t, other, a, b)
	for i := range rounds {
		at := []*gateway{a, b}[i%2]
		id, key := at.Key(t, fmt.Sprint("key-", i), "*")
		var streams []<-chan struct{}
		for _, g := range []*gateway{a, b} {
			client := g.Client(t, key)
			if status := g.chat(t, client); status != http.StatusOK {
				t.Fatalf("a key that %s has just made: status %d at %s", at.name, status, g.name)
			}
			streams = append(streams, g.stream(t, client))
		}
		l := startLoad(t, key, a, b)
		l.wait(&l.taken, 10, "requests with the key")
		if _, stderr, code := at.Run(t, "key", "revoke", id); code != 0 {
			t.Fatalf("key revoke: exit code %d, %s", code, stderr)
		}
		l.revoked.Store(true)
		l.wait(&l.refused, 20, "refused requests")
		l.end()
		for i, ended := range streams {
			select {
			case <-ended:
			case <-time.After(limit):
				t.Errorf("a stream at %s goes on", []*gateway{a, b}[i].name)
			}
		}
	}
	keeps.wait(&keeps.taken, 10, "requests with another key")
	keeps.end()
}

// TestGatewayKilled: a gateway that was killed comes back under its name at once. Another one
// does not get it.
func TestGatewayKilled(t *testing.T) {
	t.Parallel()
	etcd := start(t, 1)
	a, b := startGateway(t, "a", etcd.urls()...), startGateway(t, "b", etcd.urls()...)
	id, key := a.Key(t, "key", "*")
	_, other := a.Key(t, "other", "*")
	b.await(t, b.Client(t, other), http.StatusOK, "the model at b")
	l := startLoad(t, other, a)
	b.Process.Signal(t, syscall.SIGKILL)
	b.Process.WaitExit(t, limit)
	b.Restart(t)
	b.await(t, b.Client(t, other), http.StatusOK, "a connector at b")
	if _, stderr, code := a.Run(t, "key", "revoke", id); code != 0 {
		t.Errorf("key revoke: exit code %d, %s", code, stderr)
	}
	if status := b.chat(t, b.Client(t, key)); status != http.StatusUnauthorized {
		t.Errorf("a revoked key at b: status %d", status)
	}
	l.wait(&l.taken, 10, "requests at a")
	l.end()

	r, err := rig.New(rig.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	o := inEtcd("b", etcd.urls()...)
	c, err := r.Gateway(rig.GatewayOptions{Storage: o.Storage, App: o.App})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Start(t.Context())
	if closed := r.Close(); closed != nil {
		t.Error(closed)
	}
	if err == nil || !strings.Contains(err.Error(), "another gateway of the cluster is called b: give each its own name") {
		t.Errorf("a second gateway called b: %v", err)
	}
	b.await(t, b.Client(t, other), http.StatusOK, "the first b")
}

// TestGatewayCutOff: a gateway without etcd refuses requests. What was revoked meanwhile it
// does not take when it is back.
func TestGatewayCutOff(t *testing.T) {
	t.Parallel()
	etcd := start(t, 1)
	p := newProxy(t, etcd[0])
	a, b := startGateway(t, "a", etcd.urls()...), startGateway(t, "b", p.url)
	id, key := a.Key(t, "key", "*")
	_, other := a.Key(t, "other", "*")
	for _, k := range []string{key, other} {
		b.await(t, b.Client(t, k), http.StatusOK, "the model at b")
	}
	taken := b.stream(t, b.Client(t, key))
	p.swallow.Store(true)
	_, stderr, code := a.Run(t, "key", "revoke", id)
	if code != 1 || !strings.Contains(stderr, "not confirmed") || !strings.Contains(stderr, "b has not answered, and without the store it accepts nothing after") {
		t.Errorf("key revoke while b is cut off: exit code %d, %s", code, stderr)
	}
	later, _ := a.Key(t, "later", "*")
	a.revoke(t, later) // when it is confirmed, so is what was revoked before
	for _, k := range []string{key, other} {
		if status := b.chat(t, b.Client(t, k)); status != http.StatusServiceUnavailable {
			t.Errorf("b has confirmed, and takes requests: status %d", status)
		}
	}
	if status := a.chat(t, a.Client(t, other)); status != http.StatusOK {
		t.Errorf("status %d at a", status)
	}
	p.swallow.Store(false)
	p.cut()
	revoked, client := b.Client(t, key), b.Client(t, other)
	harness.Poll(t, limit, "b with etcd", func(context.Context) error {
		if status := b.chat(t, revoked); status != http.StatusServiceUnavailable && status != http.StatusUnauthorized {
			t.Errorf("b takes the revoked key: status %d", status)
		}
		if status := b.chat(t, client); status != http.StatusOK {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
	if status := b.chat(t, revoked); status != http.StatusUnauthorized {
		t.Errorf("b takes the revoked key: status %d", status)
	}
	select {
	case <-taken:
	case <-time.After(limit):
		t.Error("the stream with the revoked key goes on")
	}
}

// TestGatewaysWithoutLeader kills etcd's leader: no request fails.
func TestGatewaysWithoutLeader(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("slow")
	}
	etcd := start(t, 3)
	a, b := startGateway(t, "a", etcd.urls()...), startGateway(t, "b", etcd.urls()...)
	_, key := a.Key(t, "key", "*")
	for _, g := range []*gateway{a, b} {
		g.await(t, g.Client(t, key), http.StatusOK, "the model at "+g.name)
	}
	l := startLoad(t, key, a, b)
	for i := range 4 {
		leader := etcd.leader(t)
		leader.Kill()
		harness.Poll(t, limit, "a write without the leader", func(ctx context.Context) error {
			_, _, err := a.Gateway.Gateway.Key(ctx, fmt.Sprint("later-", i), "*")
			return err
		})
		l.wait(&l.taken, 20, "requests without the leader")
		leader.start(t)
	}
	l.end()
	id, last := b.Key(t, "last", "*")
	if _, stderr, code := b.Run(t, "key", "revoke", id); code != 0 {
		t.Errorf("key revoke: exit code %d, %s", code, stderr)
	}
	if status := a.chat(t, a.Client(t, last)); status != http.StatusUnauthorized {
		t.Errorf("a revoked key: status %d", status)
	}
}
