package turns

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Cases with two events in both orders, and changes of what is known.
func TestCases(t *testing.T) {
	for name, test := range map[string]func(w *world){
		"the only waiting request for a model leaves during the drain": func(w *world) {
			w.models()
			w.ask("A1 a A")
			w.held["A1"].Answered()
			b := w.ask("B1 b B high")
			w.ask("A2 a A")
			w.at(6) // closed at 5
			b()     // the model is open again
			w.leave("A1", "A2")
			w.expect("A1 0, B1: left 6, A2 6")
			if n := w.Servers(acme)[0].Swaps; n != 1 {
				w.Errorf("%d swaps", n)
			}
		},
		"it leaves after the drain": func(w *world) {
			w.models()
			w.ask("A1 a A")
			b := w.ask("B1 b B high")
			w.at(1)
			w.leave("A1")
			b() // it has its place
			w.ask("A2 a A")
			w.leave("B1", "A2")
			w.expect("A1 0, B1 1, A2 1")
		},
		"lost during the load: nothing is loaded, and the request keeps its age": func(w *world) {
			w.models()
			w.ask("A1 a A")
			w.ask("A2 a A")
			w.at(1)
			w.RemoveConnector(acme, "c")
			w.at(2)
			w.connect("c", 1, "1u")
			if s := w.Servers(acme)[0]; s.Loaded != "A" {
				w.Errorf("%q is loaded while A1 runs", s.Loaded)
			}
			w.expect("A1 0") // A2 is not sent while A1 may still run
			w.take("A1").Unused()
			w.ask("A1 a A waited=1")
			w.leave("A2", "A1")
			w.expect("A2 2, A1 2")
		},
		"a place that was not used does not begin a turn or spend one": func(w *world) {
			w.models()
			for _, q := range []string{"A1 a A", "B1 b/1 B", "B2 b/1 B", "B3 c B"} {
				w.ask(q)
			}
			w.leave("A1")
			w.take("B1").Unused()
			synctest.Wait()
			w.leave("B2", "B3")
			w.expect("A1 0, B1 0, B2 0, B3 0")
			if s := w.Servers(acme)[0]; s.Loaded != "B" {
				w.Errorf("state %v", s)
			}
			w.ask("C1 c C")
			w.take("C1").Unused()
			if s := w.Servers(acme)[0]; s.Loaded != "" {
				w.Errorf("state %v after an unused load", s)
			}
			w.log = nil
		},
		"a place that was free at once returns no turn": func(w *world) {
			w.connect("c1", 1, "u")
			w.connect("c2", 1, "u")
			w.deploy("D", "", 0, "c1", "c2")
			for _, q := range []string{"x x D refused=c2", "b1 b D refused=c2", "a1 a D refused=c2", "a2 a D refused=c1"} {
				w.ask(q)
			}
			w.take("a2").Unused()
			w.leave("x", "b1", "a1")
			w.expect("x 0, a2 0, b1 0, a1 0")
		},
		"a late call for a dropped account leaves the next one alone": func(w *world) {
			w.connect("c", 0, "u")
			w.deploy("D", "", 0, "c")
			w.ask("r a D")
			r := w.take("r")
			w.RemoveConnector(acme, "c")
			r.Leave()
			w.connect("c", 0, "u")
			r.Leave()
			w.ask("s a D")
			w.leave("s")
			w.expect("r 0, s 0")
		},
		"a risen request that was not sent gives its turn back": func(w *world) {
			w.connect("c", 0, "u")
			w.deploy("D", "", 1, "c")
			for _, q := range []string{"r z D", "a1 a D low", "a2 a D low", "b1 b D low"} {
				w.ask(q)
			}
			w.at(2000)
			w.leave("r")
			w.take("a1").Unused()
			synctest.Wait()
			w.leave("a2", "b1")
			w.expect("r 0, a1 2000, a2 2000, b1 2000")
		},
		"max_requests 4 to 2 with 4 running": func(w *world) {
			w.connect("c", 4, "u")
			w.deploy("D", "", 0, "c")
			for i := range 6 {
				w.ask(fmt.Sprintf("r%d a D", i))
			}
			w.connect("c", 2, "u")
			w.leave("r0", "r1")
			w.expect("r0 0, r1 0, r2 0, r3 0")
			w.leave("r2", "r3")
			w.expect("r4 0, r5 0")
		},
		"takeover with both tunnels full: places outlive the tunnel": func(w *world) {
			w.connect("c", 0, "u")
			w.deploy("D", "", 2, "c")
			for i := range 4 {
				w.ask(fmt.Sprintf("r%d a D", i))
			}
			w.RemoveConnector(acme, "c")
			w.connect("c", 0, "u")
			w.connect("c", 0, "u")
			w.expect("r0 0, r1 0")
			w.leave("r0")
			w.expect("r2 0")
			w.leave("r1", "r2", "r3")
			w.expect("r3 0")
		},
		"S is changed during a turn": func(w *world) {
			w.models()
			w.ask("A1 a A")
			w.held["A1"].Answered()
			w.ask("A2 a A")
			w.ask("B1 b B")
			w.at(6)
			w.SetSwapAfter(5 * time.Second)
			w.leave("A1", "B1", "A2")
			w.expect("A1 0, B1 6, A2 6")
		},
		"a closing model is loaded at an idle server": func(w *world) {
			w.models()
			w.ask("A1 a A")
			w.held["A1"].Answered()
			w.deploy("A", "A", 1, "c", "d")
			w.connect("d", 1, "1u")
			w.ask("A2 a A")
			w.ask("B1 b B")
			w.expect("A1 0")
			w.at(9) // the timer closes the model for B at c
			w.expect("A2 9")
			w.leave("A1", "B1", "A2")
			w.expect("B1 9")
		},
		"errors": func(w *world) {
			w.connect("c", 0, "u")
			w.deploy("D", "", 1, "c", "d")
			w.deploy("E", "none/m", 1, "c")
			for _, q := range []string{
				"q1 a D refused=c", "q2 a D unfit=c", "q3 a E", "q4 a F", "q5 a D", "q6 a D wait=2", "q7 a D length=-1",
				"q8 a D wait=-1",
			} {
				w.ask(q)
			}
			w.at(2)
			w.ask("q9 a D refused=d")
			w.connect("d", 1, "u")
			w.expect("q1: refused 0, q2: unfit 0, q3: no route 0, q4: removed 0, q7: full 0, q8: full 0, q5 0, q6: late 2")
			w.ask("r d D refused=c")
			w.RemoveConnector(acme, "c")
			w.leave("q5")
			delete(w.deployments, "D")
			w.DeploymentChanged(acme, "D")
			w.expect("q9: refused 2, r 2")
		},
		"queue_wait is at least ten turns": func(w *world) {
			w.models()
			w.ask("A1 a A")
			w.ask("A2 a A wait=2")
			w.ask("A3 a A wait=100 waited=50")
			w.at(95)
			w.expect("A1 0, A3: late 50, A2: late 90")
		},
		"its share of places": func(w *world) {
			w.SetShare(func(n int) int { return max(1, n/2) })
			w.connect("c", 4, "u")
			w.deploy("D", "", 0, "c")
			for i := range 4 {
				w.ask(fmt.Sprintf("r%d a D", i))
			}
			w.expect("r0 0, r1 0")
			w.SetShare(func(n int) int { return n })
			w.expect("r2 0, r3 0")
		},
		"a server that is down serves only while no other is up": func(w *world) {
			w.connect("c", 0, "u!")
			w.connect("d", 1, "u")
			w.deploy("D", "", 1, "c", "d")
			w.ask("r1 a D")
			w.ask("r2 a D")
			w.expect("r1 0")
			w.connect("d", 1, "u!")
			w.expect("r2 0")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.SetSwapAfter(9 * time.Second)
				test(w)
				w.empty()
			})
		})
	}
}

// models connects a server that loads one of three models, with a place each.
func (w *world) models() {
	w.connect("c", 1, "1u")
	for _, m := range []string{"A", "B", "C"} {
		w.deploy(m, m, 1, "c")
	}
}

// The last connector is lost with 50 requests in line. They wait for it until connect_wait.
func TestConnectorLost(t *testing.T) {
	for back, want := range map[float64]string{14: "51 served, 0 offline, 1 full", 16: "1 served, 51 offline, 0 full"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.answer = 20 * time.Second
			w.connect("c", 0, "u")
			w.deploy("D", "", 1, "c")
			for i := range 51 {
				w.run(t.Context(), fmt.Sprintf("r%d a D wait=60", i))
				synctest.Wait()
			}
			w.at(1)
			w.RemoveConnector(acme, "c")
			w.ask("n a D length=-1")
			w.at(1 + back)
			w.connect("c", 0, "u")
			synctest.Wait() // n does not wait for a place
			w.deploy("D", "", 0, "c")
			w.wg.Wait()
			count := map[string]int{}
			for _, e := range w.log {
				count[e.text]++
				if _, err, ok := strings.Cut(e.text, ": "); ok {
					count[err]++
				}
			}
			offline, full := count[ErrOffline.Error()], count[ErrFull.Error()]
			got := fmt.Sprintf("%d served, %d offline, %d full", w.served["a/"], offline, full)
			if got != want {
				t.Errorf("back after %v s: %s, want %s", back, got, want)
			}
			w.empty()
		})
	}
}

// A request is canceled, displaced or late in the step of its turn: it has one outcome, in both orders.
func TestOneOutcome(t *testing.T) {
	for first, want := range map[string]string{
		"cancel": "r: left 0, s 0", "leave": "r: left 0, s 0", "displace": "r: full 0, h 0, s 0", "turn": "r 0, h 0, s 0",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.connect("c", 0, "u")
			w.deploy("D", "", 1, "c")
			w.ask("x x D")
			cancel := w.ask("r a D low")
			w.log = nil
			_, h := w.request("h b D high length=1")
			high := func() {
				w.wg.Go(func() {
					p, err := w.Wait(context.Background(), h)
					if err != nil {
						t.Error(err)
						return
					}
					w.note("h", p)
					p.Leave()
				})
			}
			x := w.take("x")
			switch first { // without a pause: the waiter sees both at once
			case "cancel":
				cancel()
				x.Leave()
			case "leave":
				x.Leave()
				cancel()
			case "displace":
				high()
				synctest.Wait()
				x.Leave()
			case "turn":
				x.Leave()
				high()
				synctest.Wait()
				w.leave("r")
			}
			synctest.Wait()
			if first == "leave" && w.held["r"] != nil { // it saw its place first
				w.leave("r")
				want = "r 0, s 0"
			}
			w.ask("s c D")
			w.leave("s")
			w.expect(want)
			w.empty()
		})
	}
}

// A panic of a lookup or a resolution ends one request, and leaves the account unlocked.
func TestPanicUnlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		fails := func(q string) {
			defer func() {
				if recover() == nil {
					t.Errorf("no panic for %s", q)
				}
			}()
			_, r := w.request(q)
			_, _ = w.Wait(t.Context(), r)
		}
		w.SetConnector(Connector{
			ID: "c", Account: acme, Servers: []Server{{Name: "u"}},
			Resolve: func(string, string, string) (string, string, error) { panic("resolve") },
		})
		w.deployments["D"] = Deployment{Connectors: []string{"c"}}
		fails("r a D")
		w.lookup = func(string, string) (Deployment, bool) { panic("lookup") }
		fails("r a E")
		w.RemoveConnector(acme, "c") // gets the lock
	})
}
