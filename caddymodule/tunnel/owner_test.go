package tunnel

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// TestOwner: all gateways name the same owner, one with a tunnel of the first connector that is
// online. It is settled a second after it has changed, and not while a tunnel ends.
func TestOwner(t *testing.T) {
	inCluster(t, func(t *testing.T, newEdge func(string) *testGateway) {
		edges := map[string]*testGateway{}
		for _, name := range []string{"a", "b", "c"} {
			edges[name] = newEdge(name)
			edges[name].MembersChanged()
		}
		for name, g := range edges {
			for other, to := range edges {
				if other != name {
					g.joins(t, to, name)
				}
			}
		}
		time.Sleep(settleTime)
		keyFor := func(want string) string {
			for i := 0; ; i++ {
				key := fmt.Sprint("key-", i)
				var first candidate
				for name := range edges {
					first.consider(candidateFor(key, name, false))
				}
				if first.edge == want {
					return key
				}
			}
		}
		key := keyFor("c")
		expect := func(what, want string, wantSettled bool) {
			t.Helper()
			for name, g := range edges {
				owner, settled := g.Owner([]string{"con_1", "con_2"}, key)
				if owner == "" {
					owner = name
				}
				if owner != want || settled != wantSettled {
					t.Errorf("%s: at %s the owner is %s, settled: %t", what, name, owner, settled)
				}
			}
		}
		const noticed = 3 * publishInterval
		expect("without tunnels", "c", true)
		edges["b"].connect(t, "con_2", echo).beats()
		time.Sleep(publishTime)
		time.Sleep(settleTime)
		expect("with the second connector", "b", true)
		edges["a"].connect(t, "con_1", echo).beats()
		time.Sleep(noticed)
		expect("with the first connector", "a", false)
		time.Sleep(settleTime)
		expect("a second later", "a", true)
		edges["c"].connect(t, "con_1", echo).beats()
		time.Sleep(noticed)
		expect("with its second tunnel", "c", false)
		time.Sleep(settleTime)
		expect("a second later", "c", true)
		edges["c"].connect(t, "con_1", echo).beats()
		edges["b"].connect(t, "con_1", echo).beats()
		time.Sleep(noticed)
		expect("with a new tunnel there, and one elsewhere", "c", true)
		edges["c"].joins(t, edges["a"], "c")
		time.Sleep(settleTime + noticed)
		expect("with a new connection of its edge", "c", true)
		edges["b"].Disconnect("con_1", link.CloseNone)
		time.Sleep(noticed)
		expect("without the tunnel elsewhere", "c", true)
		time.Sleep(settleTime)
		edges["c"].live["con_1"].stopServing() // as the end of its connection does, before the hub removes it
		for _, name := range []string{"a", "b"} {
			for _, s := range edges[name].remote["con_1"] {
				if s.at.name == "c" {
					s.stopServing()
				}
			}
		}
		expect("while its tunnel ends", "a", false)
		edges["c"].Disconnect("con_1", link.CloseNone)
		time.Sleep(noticed)
		expect("without its tunnel", "a", false)
		edges["c"].connect(t, "con_1", echo).beats()
		time.Sleep(noticed)
		expect("with another one", "c", false)
		time.Sleep(settleTime)
		expect("a second later", "c", true)
		for name, g := range edges {
			if len(g.departed) != 0 {
				t.Errorf("%s remembers %v", name, g.departed)
			}
		}
	})
}
