package turns

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing/synctest"
	"time"
)

// game plays events against a scheduler and an oracle.
type game struct {
	*world
	*oracle
	next   func(n int) int
	asked  map[string]*asked
	cancel map[string]context.CancelFunc
	errs   map[string]error
	alive  map[string]bool // deployments with a line
	placed map[string]*Place
}

func (g *game) setSwapAfter(seconds int) {
	g.oracle.swapAfter = time.Duration(seconds) * time.Second
	g.SetSwapAfter(g.oracle.swapAfter)
}

// setConnector sets a connector with random limits.
func (g *game) setConnector(id string) {
	server := map[bool]string{true: "1u", false: "u"}[id[0] == 'm']
	down := ""
	if g.next(5) == 0 {
		down = "!"
	}
	if g.next(2) == 0 {
		g.connect(id, g.next(4), server+down, "v")
	} else {
		g.connect(id, 1+g.next(3), server+down, "v", "1w")
	}
	for _, was := range g.online[id].Servers {
		if !slices.ContainsFunc(g.connectors[id].Servers, func(s Server) bool { return s.Name == was.Name }) {
			g.forget(way{connector: id, server: was.Name})
		}
	}
	g.online[id] = g.connectors[id]
	if down != "" {
		g.forget(way{connector: id, server: server})
	}
}

// setDeployment sets a deployment with random servers.
func (g *game) setDeployment(i int) {
	name, model := fmt.Sprint("D", i), string(rune('A'+g.next(3)))
	if n := g.next(8); n < 3 {
		model = []string{"v/", "1w/", "none/"}[n] + model
	}
	g.deploy(name, model, g.next(3), connectors[g.next(2):2+g.next(3)]...)
	d := g.deployments[name]
	d.InOrder = g.next(3) == 0
	g.mu.Lock()
	g.deployments[name] = d
	g.mu.Unlock()
	g.DeploymentChanged(acme, name)
	g.deps[name] = d
}

// arrive sends a random request.
func (g *game) arrive(i int) {
	name := fmt.Sprint("q", i)
	text := fmt.Sprintf("%s %c/%d D%d wait=60.5", name, 'a'+g.next(3), g.next(2), g.next(5))
	for n, flag := range []string{
		"high", "low", "low", "judge", "refused=c1", "refused=m1", "unfit=c2", "length=3", "length=-1", "waited=4",
	} {
		if g.next(6) == 0 && !(n == 2 && g.next(2) == 0) {
			text += " " + flag
		}
	}
	_, q := g.request(text)
	q.Affinity = uint64(g.next(2) * g.next(5))
	ctx, cancel := context.WithCancel(g.Context())
	now, bound := time.Now(), q.Wait
	if slices.ContainsFunc(g.ways(q.Deployment), func(w way) bool { return w.oneModel }) {
		bound = max(bound, 10*g.oracle.swapAfter)
	}
	a := &asked{Request: q, name: name, since: now.Add(-q.Waited), rank: rank(q.Priority, q.Judge)}
	a.rises = a.since.Add(bound / 2)
	g.asked[name], g.cancel[name] = a, cancel
	g.wg.Go(func() {
		p, err := g.Wait(ctx, q)
		if err != nil {
			g.mu.Lock()
			g.errs[name] = err
			g.mu.Unlock()
			return
		}
		g.mu.Lock()
		g.placed[name] = p
		g.mu.Unlock()
	})
	synctest.Wait()
	g.alive[q.Deployment] = true
	g.settle(a)
}

// event plays a random event.
func (g *game) event(i int) {
	g.oracle.rise(time.Now())
	g.close(time.Now())
	n := g.next(24)
	g.Logf("%d: choice %d", i, n)
	switch {
	case n < 8:
		g.arrive(i)
		return
	case n < 15 && len(g.running) > 0:
		q := g.running[g.next(len(g.running))]
		unused := n == 8
		g.oracle.end(q, unused)
		if p := g.held[q.name]; unused {
			p.Unused()
		} else {
			p.Leave()
			p.Leave()
		}
		delete(g.held, q.name)
	case n < 17 && len(g.running) > 0:
		q := g.running[g.next(len(g.running))]
		g.held[q.name].Answered()
		if s := g.server(q.way); q.turn > 0 && q.turn == s.number {
			if s.used = true; s.turn.IsZero() {
				s.turn = time.Now()
			}
		}
	case n == 17 && len(g.waiting) > 0:
		g.cancel[g.waiting[g.next(len(g.waiting))].name]()
	case n == 18:
		id := connectors[g.next(len(connectors))]
		if _, ok := g.online[id]; ok && g.next(3) == 0 {
			g.RemoveConnector(acme, id)
			for _, s := range g.online[id].Servers {
				g.forget(way{connector: id, server: s.Name})
			}
			delete(g.online, id)
		} else {
			g.setConnector(id)
		}
	case n == 19 && g.next(2) == 0:
		g.setDeployment(g.next(5))
	case n == 20 && g.next(4) == 0:
		g.setSwapAfter(3 + g.next(10))
	default:
		for range 1 + g.next(12) {
			time.Sleep(time.Second / 2)
			synctest.Wait()
			g.SetSwapAfter(g.oracle.swapAfter)
			g.settle(nil)
		}
		return
	}
	g.settle(nil)
}

// settle checks what an event has caused.
func (g *game) settle(arrived *asked) {
	synctest.Wait()
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, err := range g.errs {
		g.expectError(g.asked[name], arrived, err)
		g.end(g.asked[name], false)
		delete(g.asked, name)
	}
	if arrived != nil && g.errs[arrived.name] == nil {
		for _, party := range []string{owner(arrived), key(arrived)} {
			if _, ok := g.stamps["came"+party]; !ok {
				g.clock++
				g.stamps["came"+party] = g.clock
			}
		}
		g.clock++
		if arrived.number = g.clock; g.placed[arrived.name] == nil {
			g.waiting = append(g.waiting, arrived)
			g.join(arrived)
		}
	}
	clear(g.errs)
	g.sweep()
	g.oracle.rise(now)
	g.close(now)
	for _, name := range slices.SortedFunc(maps.Keys(g.placed), func(m, n string) int {
		return int(g.placed[m].clock) - int(g.placed[n].clock)
	}) {
		q, p := g.asked[name], g.placed[name]
		if q == nil {
			g.Fatalf("%s has two outcomes", name)
		}
		if err := g.grant(q, p, q == arrived, now); err != nil {
			g.Fatal(err)
		}
		g.held[name] = p
		delete(g.placed, name)
	}
	for _, s := range g.servers {
		s.filling = false
	}
	g.close(now)
	g.sweep()
	for id := range g.online {
		if q, w := g.oracle.next(id, now); q != nil {
			g.Errorf("%s waits, but there is a place at %v", q.name, w)
		}
	}
	for name := range g.deps {
		n := g.count(func(q *asked) bool { return q.Deployment == name })
		if running, waiting := g.Load(acme, name); running != n || waiting != len(g.line(name)) {
			g.Errorf("%s: %d run and %d wait, want %d and %d", name, running, waiting, n, len(g.line(name)))
		}
	}
	for _, s := range g.Servers(acme) {
		if same := g.Server(acme, s.Connector, s.Server); same != s {
			g.Errorf("%v is not %v", same, s)
		}
		if o := g.servers[s.Connector+"/"+s.Server]; o != nil && o.loaded != s.Loaded {
			g.Errorf("%v is loaded, not %q", s, o.loaded)
		}
	}
}

// expectError expects that a request may end with an error.
func (g *game) expectError(q, arrived *asked, err error) {
	waited := time.Since(q.since)
	online := slices.ContainsFunc(g.deps[q.Deployment].Connectors, func(id string) bool {
		_, ok := g.online[id]
		return ok
	})
	may := len(g.may(q.Request)) > 0
	for want, ok := range map[error]bool{
		ErrTimeout: online && waited >= q.Wait, ErrOffline: !online, context.Canceled: true,
		ErrFull:    arrived != nil && arrived.Deployment == q.Deployment || q.Length < 0,
		ErrRefused: online && !may && len(q.Refused) > 0,
		ErrUnfit:   online && !may && len(q.Unfit) > 0, errRoute: online && !may,
	} {
		if errors.Is(err, want) && ok {
			return
		}
	}
	g.Errorf("%s ends with %v after %v", q.name, err, waited)
}

// sweep forgets what does not exist any longer.
func (g *game) sweep() {
	for name := range g.alive {
		requests := append(slices.Clone(g.waiting), g.running...)
		online := slices.ContainsFunc(g.deps[name].Connectors, func(id string) bool { _, ok := g.online[id]; return ok })
		if !online && !slices.ContainsFunc(requests, func(q *asked) bool { return q.Deployment == name }) {
			delete(g.alive, name)
		}
	}
	for id, s := range g.servers {
		connector, server := id[:2], id[3:]
		known := slices.ContainsFunc(g.online[connector].Servers, func(f Server) bool { return f.Name == server })
		if !known && g.count(func(q *asked) bool { return q.way.connector == connector && q.way.server == server }) == 0 {
			delete(g.servers, id)
		}
		maps.DeleteFunc(s.ended, func(model string, _ time.Time) bool {
			for name := range g.alive {
				if slices.ContainsFunc(g.ways(name), func(w way) bool {
					return w.connector == connector && w.server == server && w.model == model
				}) {
					return false
				}
			}
			return model != s.loaded
		})
	}
}
