package cluster

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
)

// TestHistories causes faults in clusters while clients use all edges, and checks what the clients have
// observed. With -short, on_store_loss is short, and so is the whole test.
func TestHistories(t *testing.T) {
	t.Parallel()
	if network == nil {
		t.Skip("POSTERN_SKIP_NETWORK=1: tests that need root are skipped")
	}
	for _, row := range []struct {
		name    string
		members int
		run     func(*cluster)
	}{
		{"changes", 1, changes},
		{"suspended", 1, suspended},
		{"groups", 1, groups},
		{"member cut off", 3, memberCutOff},
		{"cut from etcd", 1, func(c *cluster) { cutOff(c, false) }},
		{"cut from all", 1, func(c *cluster) { cutOff(c, true) }},
		{"cut from peers", 1, cutFromPeers},
		{"etcd down", 1, etcdDown},
		{"killed", 1, killed},
		{"another disk", 1, anotherDisk},
		{"stopped", 1, stopped},
		{"cloned", 1, cloned},
		{"bounded", 1, bounded},
		{"restarted", 1, restarted},
		{"rotated", 1, rotated},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			lines := "" // of the sites
			if row.name == "suspended" {
				lines = needsSignIn
			}
			c := newCluster(t, row.members, lines)
			row.run(c)
			c.finish()
		})
	}
}

// silence is the time after which peers and connectors consider an edge as lost, and not as slow.
const silence = 15 * time.Second

// edge returns the i-th edge, modulo their number.
func (c *cluster) edge(i int) *edge { return c.edges[i%len(c.edges)] }

// confirmed checks that all edges had confirmed the write when it returned.
func (c *cluster) confirmed(w write) {
	c.Helper()
	if !w.confirmed() {
		c.Errorf("not confirmed: %+v", w)
	}
}

// changes: a new key works at all edges at once. A revoked key is refused at all edges when the revocation
// returns. A moved model is served by its new connector.
func changes(c *cluster) {
	for i := range short(200, 12) {
		k := c.create(c.edge(i))
		u := c.use(k, true)
		u.more(u.whole, 1, "answers")
		u.more(u.flowing, 1, "events")
		c.confirmed(c.revoke(c.edge(i+1), k))
		u.more(u.refused, 2, "refusals")
		u.stop()
	}
	for i := range short(100, 12) {
		c.confirmed(c.move(c.edge(i), places[(i+1)%len(places)]))
		var all sync.WaitGroup
		for _, e := range c.edges {
			all.Go(func() { c.send(c.Context(), e, c.steady, "m", "", nil) })
		}
		all.Wait()
	}
}

// groups: a key that was given to a group is refused at all edges when the write that narrows the group's scope, or
// removes the group, returns.
func groups(c *cluster) {
	for i := range short(100, 12) {
		g := c.group(c.edge(i))
		k := c.createIn(c.edge(i+1), g)
		u := c.use(k, true)
		u.more(u.whole, 1, "answers")
		u.more(u.flowing, 1, "events")
		if i%2 == 0 {
			c.confirmed(c.takeAway(c.edge(i+2), k, http.MethodPatch, "/groups/"+g, map[string]string{"scope": "bounded"}))
		} else {
			c.confirmed(c.takeAway(c.edge(i+2), k, http.MethodDelete, "/groups/"+g, nil))
		}
		u.more(u.refused, 2, "refusals")
		u.stop()
	}
}

// lease checks an edge without contact with etcd from a time on. It serves for on_store_loss and no longer. Until then,
// writes without its confirmation are not confirmed. The last contact was at most three seconds old.
func (c *cluster) lease(e *edge, from, again time.Duration) {
	c.mustRefuse(e, from+c.loss, again)
	c.mayFail(e.name, from+c.loss-grace, c.serves(e)+grace)
}

// cutOff: an edge without etcd accepts a revoked key only until the time in the answer to the revocation. The
// others continue, even if the edge can reach nothing but its clients.
func cutOff(c *cluster, all bool) {
	a, e := c.edges[0], c.edges[2]
	k := c.create(a)
	u := c.use(k, true)
	u.more(u.flowing, 1, "events")
	var from []netip.Addr
	if !all {
		_, from = c.addresses(nil)
	}
	cut := c.cut(e.machine, from...)
	if w := c.revoke(a, k); len(w.pending) != 1 || w.pending[e.name] > cut+c.loss+grace {
		c.Errorf("not pending at %s: %+v", e.name, w)
	}
	confirmed := c.confirm(a, k)
	c.note("confirmed after %.1f s", (confirmed - cut).Seconds())
	if limit := c.loss + c.margin() + 4*grace; confirmed-cut > limit {
		c.Errorf("confirmed after %v, not after %v", confirmed-cut, limit)
	}
	u.more(u.refused, 1, "refusals")
	again := c.heal()
	c.lease(e, cut, again)
	c.note("serves %.1f s after the line", (c.history.now() - again).Seconds())
	if all { // at first, connectors and peers consider it as slow
		c.mayFail("", cut, cut+silence)
		c.mayFail(e.name, cut, cut+c.loss)
	}
}

// cutFromPeers: writes are confirmed while two edges cannot reach the third one.
func cutFromPeers(c *cluster) {
	e := c.edges[2]
	edges, _ := c.addresses(e)
	cut := c.cut(e.machine, edges...)
	for i := range 6 {
		k := c.create(c.edge(i))
		c.confirmed(c.revoke(c.edge(i+1), k))
	}
	again := c.heal()
	c.mayFail("", cut, cut+silence)
	c.mayFail(e.name, cut, max(again, c.serves(e))+grace) // its requests for connectors with tunnels to the others only
}

// etcdDown: requests succeed without etcd for on_store_loss, and when it comes back. An edge that starts
// meanwhile does not serve, and exits.
func etcdDown(c *cluster) {
	etcd, k := c.members[0], c.create(c.edges[0])
	etcd.Kill()
	down := c.history.now()
	c.until(down + c.loss*6/10)
	etcd.start(c)
	c.servers().wait(c)
	if back := c.confirm(c.edges[0], k); back > down+c.loss-grace/2 { // a busy machine has started etcd too late
		c.mayFail("", down+c.loss-grace, back+grace)
		c.mayFail("writes", down+c.loss-grace, back+grace)
	}
	c.until(c.history.now() + grace) // until all edges have had contact that began after the restart
	k = c.create(c.edges[0])
	etcd.Kill()
	down = c.history.now()
	e, killed := c.edges[2], c.kill(c.edges[2])
	c.begin(e)
	c.mustRefuse(e, c.history.now(), down+c.loss)
	c.mayFail("writes", down, down+c.loss+c.margin())
	w := c.revoke(c.edges[0], k)
	if !strings.Contains(w.err, "status 503") || !strings.Contains(w.err, "did not answer") {
		c.Errorf("a revocation without etcd: %+v", w)
	}
	code := e.Process.WaitExit(c, c.patience())
	if code == 0 || !strings.Contains(e.Process.Tail(), "check that etcd runs") {
		c.Errorf("a start without etcd: exit code %d, %s", code, e.Process.Tail())
	}
	c.until(down + c.loss*3/2)
	again := c.history.now()
	etcd.start(c)
	c.servers().wait(c)
	c.start(e)
	for _, e := range c.edges {
		c.lease(e, down, again)
	}
	c.mayFail(e.name, killed, c.history.now()+grace)
	c.note("all serve %.1f s after etcd's start", (c.history.now() - again).Seconds())
}

// killed: a killed edge serves again at once if it has its disk, and writes are confirmed.
func killed(c *cluster) {
	fastest := c.patience()
	for i := range short(9, 3) {
		e, other := c.edge(i), c.edge(i+1)
		k := c.create(other)
		u := c.use(k, true)
		u.more(u.flowing, 1, "events")
		at := c.kill(e)
		fastest = min(fastest, c.start(e))
		c.confirmed(c.revoke(other, k))
		u.more(u.refused, 1, "refusals")
		u.stop()
		c.mayFail(e.name, at, c.serves(e)+grace)
	}
	c.note("ready %.2f s after a start", fastest.Seconds())
	if fastest > 5*time.Second { // it would wait longer for its old report; the machine may be busy
		c.Errorf("no start took less than %v", fastest)
	}
}

// anotherDisk: an edge that comes back without its disk waits until its old report expires, unless an operator
// removes the edge.
func anotherDisk(c *cluster) {
	a, e := c.edges[0], c.edges[1]
	for _, remove := range []bool{false, true} {
		at, limit := c.kill(e), c.loss+c.margin()+4*grace
		c.wipe(e)
		if remove {
			limit = c.loss
			if _, stderr, code := a.Run(c, "edge", "remove", e.name, "--stopped"); code != 0 {
				c.Errorf("edge remove: exit code %d, %s", code, stderr)
			}
		}
		c.start(e)
		took := c.history.now() - at
		c.note("removed: %v, ready %.1f s after its end", remove, took.Seconds())
		if took > limit {
			c.Errorf("ready after %v, not after %v", took, limit)
		}
		c.mayFail(e.name, at, c.serves(e)+grace)
		c.confirm(a, c.create(a))
	}
}

// stopped: an edge is suspended, like a sleeping laptop. Afterwards it accepts nothing that was revoked
// meanwhile.
func stopped(c *cluster) {
	a, e := c.edges[0], c.edges[2]
	for _, still := range []time.Duration{5 * time.Second, short(200*time.Second, 2*c.loss)} {
		k := c.create(a)
		u := c.use(k, true)
		u.more(u.flowing, 1, "events")
		at := c.history.now()
		e.Process.Signal(c, syscall.SIGSTOP)
		c.mayFail("", at, at+silence)
		if w := c.revoke(a, k); w.confirmed() {
			c.Errorf("confirmed while an edge may serve: %+v", w)
		}
		if still > c.loss+c.margin() {
			c.note("confirmed after %.1f s", (c.confirm(a, k) - at).Seconds())
		}
		var queued sync.WaitGroup
		for i := range 8 {
			queued.Go(func() {
				c.send(context.Background(), e, []key{k, c.steady}[i%2], "m", []string{"", "stream"}[i/2%2], nil)
			})
		}
		c.until(at + still)
		again := c.history.now()
		e.Process.Signal(c, syscall.SIGCONT)
		queued.Wait()
		c.confirm(a, k)
		u.more(u.refused, 1, "refusals")
		u.stop()
		c.mayFail("", again, again+2*grace)
		c.mayFail(e.name, at, c.serves(e)+grace)
	}
}

// cloned: a gateway with a copy of an edge's disk is harmless. It can only take the name of an edge that has
// ended.
func cloned(c *cluster) {
	e := c.edges[1]
	other, same := c.clone(e, "d"), c.clone(e, e.name)
	harness.Poll(c, c.patience(), "a refusal of the copy", func(context.Context) error {
		if log := other.Process.Log(); !strings.Contains(log, "data directory") || !strings.Contains(log, "edge.db") {
			return errors.New(other.Process.Tail())
		}
		return nil
	})
	for end := c.history.now() + c.loss + c.margin() + grace; c.history.now() < end; c.until(c.history.now() + pace) {
		for _, clone := range []*edge{other, same} {
			if status, err := c.get(c.Context(), clone.URL+readyPath); err == nil && status == http.StatusOK {
				c.Fatalf("the copy serves as %s", clone.name)
			}
		}
	}
	other.Process.Kill()
	at := c.kill(e)
	c.mayFail(e.name, at, at+c.patience()) // the edge does not come back
	c.ready(same)
	c.note("the copy serves %.1f s after the end of the edge", (c.history.now() - at).Seconds())
}

// bounded: max_concurrency limits the requests of all edges together. When an edge is killed, the model
// continues: at once if that edge counts the requests, and otherwise when the edge's own requests are
// considered as lost.
func bounded(c *cluster) {
	a := c.edges[0]
	model := map[string]any{"connector": places[0], "model": "bounded", "max_concurrency": bound}
	a.Manage(c, http.MethodPut, "/deployments/bounded", model, nil)
	ctx, stop := context.WithCancel(c.Context())
	var clients sync.WaitGroup
	for i := range 12 {
		clients.Go(func() {
			for ctx.Err() == nil {
				if r := c.send(context.WithoutCancel(ctx), c.edge(i), c.steady, "bounded", "", nil); !r.whole {
					time.Sleep(pace)
				}
			}
		})
	}
	for _, e := range c.edges {
		c.until(c.history.now() + grace)
		limit := 7 * time.Second / 2
		if c.counting() == e {
			limit = 3 * time.Second / 2
		}
		if n := c.history.turn(0); e == a && n > bound {
			c.Errorf("%d requests ran in parallel", n)
		}
		at := c.kill(e)
		c.until(at + 2*grace)
		still := c.standstill(e, at)
		c.note("without %s, the model stood still for %.2f of %v", e.name, still.Seconds(), limit)
		if still > limit {
			c.Errorf("without %s, the model stood still for %v, not for %v", e.name, still, limit)
		}
		c.start(e)
		c.mayFail(e.name, at, c.serves(e)+grace)
	}
	stop()
	clients.Wait()
}

// restarted: while one edge drains, stops and starts again, no request at another edge fails.
func restarted(c *cluster) {
	c.stops[0]() // a drain does not wait for endless streams
	c.use(c.steady, false)
	for _, e := range c.edges[:short(3, 1)] {
		at := c.history.now()
		e.Manage(c, http.MethodPost, "/edges/"+e.name+"/drain", struct{}{}, nil)
		e.Process.Signal(c, syscall.SIGTERM)
		if code := e.Process.WaitExit(c, c.patience()); code != 0 {
			c.Errorf("%s: exit code %d", e.name, code)
		}
		c.start(e)
		c.mayFail(e.name, at, c.serves(e)+grace)
	}
}

// rotated: a rotation of tokens with grace, while edges are killed, locks out no connector.
func rotated(c *cluster) {
	for i := range short(24, 3) {
		at, down := c.edge(i), c.edge(i+1)
		killed := c.kill(down)
		box := c.boxes[i%len(c.boxes)]
		var r struct {
			Token string `json:"tunnel_token"`
		}
		at.Manage(c, http.MethodPost, "/connectors/"+box.ID+"/rotate", map[string]string{"grace": "1h"}, &r)
		config, err := os.ReadFile(box.Config)
		if err == nil {
			err = os.WriteFile(box.Config, bytes.Replace(config, []byte(box.Token), []byte(r.Token), 1), 0o600)
		}
		if err != nil {
			c.Fatal(err)
		}
		box.Token = r.Token
		box.Process.Signal(c, syscall.SIGHUP)
		c.start(down)
		c.mayFail("", killed, c.serves(down)+grace) // a new token needs a new tunnel
	}
	at := c.history.now()
	for i, box := range c.boxes {
		box.Process.Kill()
		box.Launch(c)
		c.move(c.edges[0], places[i])
		for _, e := range c.edges {
			c.mayFail("", at, c.serves(e)+silence+grace) // a tunnel that drains has no hello to replace it
		}
	}
}
