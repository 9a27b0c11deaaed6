package turns

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Scenarios with plain servers: who is next.
func TestOrder(t *testing.T) {
	for name, test := range map[string]func(w *world){
		"1: owners in turn, keys in turn": func(w *world) {
			w.connect("c", 0, "u")
			w.deploy("D", "", 1, "c")
			for _, q := range []string{"x c", "p a/1", "q a/1", "r a/1", "s a/2", "t b"} {
				w.ask(q + " D")
			}
			w.leave("x", "p", "t", "s", "q", "r")
			w.expect("x 0, p 0, t 0, s 0, q 0, r 0")
		},
		"2: priority over lines, a judge before the others of its priority": func(w *world) {
			w.connect("c", 1, "u")
			w.deploy("D1", "", 0, "c")
			w.deploy("D2", "", 0, "c")
			for _, q := range []string{"x x D1", "l a D1 low", "n b D2", "j c D1 judge", "h d D2 high"} {
				w.ask(q)
			}
			w.leave("x", "h", "j", "n", "l")
			w.expect("x 0, h 0, j 0, n 0, l 0")
		},
		"6: a request that may not go there keeps its turn": func(w *world) {
			w.connect("c1", 1, "u")
			w.connect("c2", 1, "u")
			w.deploy("D", "", 0, "c1", "c2")
			w.ask("x1 x D refused=c2")
			w.ask("x2 x D refused=c1")
			w.ask("w1 a D refused=c2")
			w.at(1)
			w.ask("w2 a D")
			w.at(2)
			w.ask("w3 a D")
			w.at(4)
			w.leave("x2")
			w.at(10)
			w.leave("x1")
			w.at(24)
			w.leave("w2")
			w.expect("x1 0, x2 0, w2 4, w1 10, w3 24")
		},
		"7: fewest running, then served longest ago": func(w *world) {
			w.connect("c", 3, "u")
			w.deploy("D1", "", 0, "c")
			w.deploy("D2", "", 0, "c")
			for _, q := range []string{"r1 a D1", "r2 a D1", "r3 b D2", "a3 a D1", "b2 b D2", "c1 c D2"} {
				w.ask(q)
				time.Sleep(time.Second)
			}
			w.leave("r1", "r3", "r2")
			w.expect("r1 0, r2 1, r3 2, a3 6, b2 6, c1 6")
		},
		"8: an end at one server frees a place for another one of the connector": func(w *world) {
			w.connect("c", 1, "u1", "u2")
			w.deploy("D1", "u1/m", 0, "c")
			w.deploy("D2", "u2/m", 0, "c")
			w.ask("r a D1")
			w.ask("q b D2")
			w.leave("r")
			w.expect("r 0, q 0")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				test(w)
				w.empty()
			})
		})
	}
}

// 3 and 4: a low request rises after half of its wait, and its turn dates from then; requests of high
// priority can keep it waiting until the end.
func TestRise(t *testing.T) {
	for flag, want := range map[string]string{
		"":     "x 0, n1 5, n2 15, n3 25, l 35, n4 45, n5 55",
		"high": "x 0, n1 5, n2 15, n3 25, n4 35, n5 45, n6 55, l: late 60, n7 65, n8 75, n9 85",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.connect("c", 0, "u")
			w.deploy("D", "", 1, "c")
			w.ask("x x D")
			last := "x"
			end := func(at float64, next string) {
				w.at(at)
				w.leave(last)
				last = next
			}
			w.ask("l a D low wait=60")
			n := 5
			if flag != "" {
				n = 9
			}
			order := []string{"n1", "n2", "n3", "l", "n4", "n5"}
			if flag != "" {
				order = []string{"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"}
			}
			for i := range n {
				w.at(float64(10*i + 1))
				w.ask(fmt.Sprintf("n%d b D wait=60 %s", i+1, flag))
				end(float64(10*i+5), order[i])
			}
			for i := n; i < len(order); i++ {
				end(float64(10*i+5), order[i])
			}
			w.expect(want)
			w.empty()
		})
	}
}

// 5: a full line.
func TestDisplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.connect("c", 0, "u")
		w.deploy("D", "", 1, "c")
		for _, q := range []string{
			"x x D", "h1 a D high", "n1 b D", "l1 c D low", "l2 c D low", "n2 b D", "l3 d D low",
			"h2 e D high", "h3 f D high", "n3 g D",
		} {
			w.ask(q + " length=4")
		}
		w.leave("x", "h1", "h2", "h3", "n1")
		w.expect("l2: full 0, l3: full 0, l1: full 0, n2: full 0, n3: full 0, x 0, h1 0, h2 0, h3 0, n1 0")
		w.empty()
	})
}

// Scenarios with a server that loads one model at a time: nothing is loaded, a load takes 2 s, an answer 1 s after its
// head, which comes when the model is loaded. Closings after S count from that head.
func TestModels(t *testing.T) {
	type arrivals struct {
		at       float64
		n        int
		requests string // with %d for a number
	}
	tests := []struct {
		name      string
		swapAfter float64
		limit     int
		requests  []arrivals
		want      string
	}{
		{
			// In the order of arrival there are 6 loads, and the last begins at 17.
			"9: a loaded model's requests first", 30, 1,
			[]arrivals{
				{0, 1, "A1 a A"}, {0, 1, "B1 a B"}, {0, 1, "A2 a A"}, {0, 1, "C1 a C"}, {0, 1, "A3 a A"}, {0, 1, "B2 a B"},
			},
			"A1 0, A2 3, A3 4, B1 5, B2 8, C1 9",
		},
		{
			// The turn counts from 2 and closes at 11.5, while A10 runs. After B1, the server is idle.
			"10: another model after a turn", 9.5, 1,
			[]arrivals{{0, 30, "A%d a A"}, {1, 1, "B1 b B"}},
			"A1 0, " + sequence("A", 2, 10, 3) + ", B1 12, A11 15, " + sequence("A", 12, 30, 18),
		},
		{
			// Closed at 9.5, while A8 runs.
			"11: a model of higher priority after 5 s", 60, 1,
			[]arrivals{{0, 20, "A%d a A low"}, {4.5, 1, "h b B high"}},
			"A1 0, " + sequence("A", 2, 8, 3) + ", h 10, A9 13, " + sequence("A", 10, 20, 16),
		},
		{
			// B is overdue at 5.2 + 38 = 43.2, A's requests of high priority close it 5 s after its swap. Its next
			// wait counts from the end of its turn: 50 + 38 = 88, 94 + 38 = 132.
			"12: an overdue model beside endless requests of high priority", 9.5, 0,
			[]arrivals{{0, 200, "A%d a A high"}, {5.2, 5, "n%d b B"}},
			"A1 0, " + sequence("A", 2, 42, 3) + ", n1 44, n2 44, A43 50, " + sequence("A", 44, 78, 53) +
				", n3 88, n4 88, A79 94, " + sequence("A", 80, 114, 97) + ", n5 132, A115 138, " + sequence("A", 116, 200, 141),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.load, w.answer = 2*time.Second, time.Second
				w.SetSwapAfter(time.Duration(test.swapAfter * float64(time.Second)))
				w.connect("c", 0, "1u")
				for _, m := range []string{"A", "B", "C"} {
					w.deploy(m, m, 1, "c")
				}
				if test.limit == 0 {
					w.deploy("B", "B", 2, "c")
					w.answers = map[string]time.Duration{"B": 4 * time.Second}
				}
				for _, group := range test.requests {
					w.at(group.at)
					for i := range group.n {
						text := group.requests
						if group.n > 1 {
							text = fmt.Sprintf(text, i+1)
						}
						w.run(t.Context(), text)
						synctest.Wait()
					}
				}
				w.wg.Wait()
				w.expect(test.want)
				w.empty()
			})
		})
	}
}

// sequence returns numbered requests of one second each.
func sequence(name string, from, to, start int) (s string) {
	for i := from; i <= to; i++ {
		s += fmt.Sprintf(", %s%d %d", name, i, start+i-from)
	}
	return s[2:]
}
