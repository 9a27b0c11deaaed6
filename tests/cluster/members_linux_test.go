package cluster

import (
	"net/netip"
	"slices"
	"time"
)

// memberCutOff: requests and writes succeed after the leader of etcd was killed, and while a member is cut off from
// the others. From 10 s after a cut on, writes take as long as before it: they begin no epochs.
func memberCutOff(c *cluster) {
	leader := c.member(true) // not after a cut: then the others reach each other only after TCP's pauses
	leader.Kill()
	c.writes(6, "leader killed")
	leader.start(c)
	servers{leader.server}.wait(c)
	for _, leads := range []bool{true, false} {
		away, which := c.member(leads), map[bool]string{true: "leader", false: "follower"}[leads]
		var others servers
		for _, m := range c.members {
			if m != away {
				others = append(others, m.server)
			}
		}
		_, members := c.addresses(nil)
		cut := c.cut(away.machine, slices.DeleteFunc(members, func(o netip.Addr) bool { return o == away.addr })...)
		away.awaitIsolation(c)
		c.writes(6, which+" cut off")
		c.until(max(c.history.now(), cut+10*time.Second))
		before := epochs(c, others)
		const n = 50
		median, slow := c.writes(n, which+" cut off for 10 s")
		if begun := epochs(c, others) - before; begun > n/10 {
			c.Errorf("%d writes without the %s begin %d epochs", 2*n, which, begun)
		}
		if median > 500*time.Millisecond || slow > 4*time.Second {
			c.Errorf("writes without the %s take %v, %v", which, median, slow)
		}
		c.heal()
		servers{away.server}.wait(c)
	}
}

// writes creates and revokes n keys, one after another. It returns the median and the 99th percentile of the times.
func (c *cluster) writes(n int, while string) (median, slow time.Duration) {
	c.Helper()
	var took []time.Duration
	for i := range n {
		began := c.history.now()
		k := c.create(c.edge(i))
		created := c.history.now()
		c.confirmed(c.revoke(c.edge(i+1), k))
		took = append(took, created-began, c.history.now()-created)
	}
	slices.Sort(took)
	median, slow = took[n], took[2*n-1-n/50]
	c.note("%s: %d writes took %.3f s (p50), %.3f s (p99)", while, 2*n, median.Seconds(), slow.Seconds())
	return median, slow
}
