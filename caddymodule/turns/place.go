package turns

import (
	"cmp"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// Place lets a request run at a server.
type Place struct {
	Connector, Server, Model string
	Waited                   time.Duration // in lines, with earlier attempts

	account    *account
	line       *line
	at         *server
	client     fair.Client
	owner, key *party
	rank       int
	ended      bool
	turn       uint64 // number of the server's turn
	// Clocks of this place, and of the former ones of the owner and the key at the connector.
	clock, ownerBefore, keyBefore uint64
}

// party is an owner or a key. It exists while it has requests.
type party struct {
	uses int    // requests that wait or run
	came uint64 // clock
	at   map[*connector]share
	next *party
}

// share is the share of a party at a connector.
type share struct {
	running int
	served  uint64 // clock of its newest place, or when it came
}

func (p *party) share(c *connector) share {
	s, ok := p.at[c]
	if !ok {
		s.served = p.came
	}
	return s
}

// join adds a request to a client's parties, and returns them.
func (a *account) join(c fair.Client) (owner, key *party) {
	if owner = a.owners[c.Owner]; owner == nil {
		owner = a.unused()
		a.owners[c.Owner] = owner
	}
	if key = a.keys[c]; key == nil {
		key = a.unused()
		a.keys[c] = key
	}
	owner.uses++
	key.uses++
	return owner, key
}

// unused returns a party without requests.
func (a *account) unused() *party {
	p := a.spare
	if p == nil {
		p = &party{at: make(map[*connector]share)}
	} else {
		a.spare, p.next = p.next, nil
	}
	a.clock++
	p.came = a.clock
	return p
}

// part removes a request from a client's parties.
func (a *account) part(c fair.Client, owner, key *party) {
	if owner.uses--; owner.uses == 0 {
		delete(a.owners, c.Owner)
		a.recycle(owner)
	}
	if key.uses--; key.uses == 0 {
		delete(a.keys, c)
		a.recycle(key)
	}
}

func (a *account) recycle(p *party) {
	clear(p.at)
	p.next, a.spare = a.spare, p
}

// grant takes a place at a route's server. The line has a use for it.
func (a *account) grant(p *Place, r *route, now time.Time) {
	c, s, l := r.connector, r.server, r.line
	a.clock++
	c.running++
	c.used = a.clock
	s.running++
	s.at[l]++
	l.running++
	p.Connector, p.Server, p.Model, p.at, p.clock = c.ID, s.Name, r.model.name, s, a.clock
	p.ownerBefore, p.keyBefore = p.owner.serve(c, a.clock), p.key.serve(c, a.clock)
	if s.OneModel {
		s.begin(a, p, r.model, now)
		a.mark(c) // for the timer
	}
}

// serve counts a request at a connector, and returns the former clock.
func (p *party) serve(c *connector, clock uint64) (before uint64) {
	s := p.share(c)
	before = s.served
	p.at[c] = share{s.running + 1, clock}
	return before
}

// leave counts the end of a request. If it was not sent, the former clock holds.
func (p *party) leave(c *connector, clock, before uint64, unused bool) {
	s := p.at[c]
	s.running--
	if unused && s.served == clock {
		s.served = before
	}
	p.at[c] = s
}

// Answered reports that the head of the answer has come. The turn of a model counts from its first one.
func (p *Place) Answered() {
	a := p.account
	a.mu.Lock()
	defer a.unlock()
	if !p.ended && p.at.OneModel {
		p.at.answered(p, time.Now())
		a.mark(p.at.connector) // for the timer
	}
}

// Leave ends the place. Further calls do nothing.
func (p *Place) Leave() { p.end(false) }

// Unused is Leave for a request that was not sent: no turn begins, and it does not count as served.
func (p *Place) Unused() { p.end(true) }

func (p *Place) end(unused bool) {
	a := p.account
	a.mu.Lock()
	defer a.unlock()
	if p.ended {
		return
	}
	p.ended = true
	s, l := p.at, p.line
	c := s.connector
	c.running--
	s.running--
	l.running--
	if s.at[l]--; s.at[l] == 0 {
		delete(s.at, l)
	}
	if unused {
		l.turns[p.rank].Return(p.client.Path())
		l.version++
	}
	p.owner.leave(c, p.clock, p.ownerBefore, unused)
	p.key.leave(c, p.clock, p.keyBefore, unused)
	a.part(p.client, p.owner, p.key)
	s.finish(p, unused)
	a.release(l)
	a.changed(c)
}

// ServerState is the state of a server that loads one model at a time.
type ServerState struct {
	Connector, Server string
	Loaded            string // "": unknown
	Swaps             int
	Swapping          time.Duration // from the first requests of loaded models to the heads of their answers, in sum
}

// Servers returns the states of an account's servers that load one model at a time.
func (s *Scheduler) Servers(account string) (states []ServerState) {
	a := s.account(account)
	defer a.unlock()
	for _, c := range a.connectors {
		for _, srv := range c.servers {
			if srv.OneModel {
				state := ServerState{Connector: c.ID, Server: srv.Name, Swaps: srv.swaps, Swapping: srv.swapping}
				if srv.loaded != nil {
					state.Loaded = srv.loaded.name
				}
				states = append(states, state)
			}
		}
	}
	slices.SortFunc(states, func(x, y ServerState) int {
		return cmp.Or(cmp.Compare(x.Connector, y.Connector), cmp.Compare(x.Server, y.Server))
	})
	return states
}

// Load returns how many requests of a deployment run and wait.
func (s *Scheduler) Load(account, deployment string) (running, waiting int) {
	a := s.account(account)
	defer a.unlock()
	if l := a.lines[deployment]; l != nil {
		return l.running, l.waiting.Len()
	}
	return 0, 0
}

// Lengths calls f for each deployment that has a line, without a lock.
func (s *Scheduler) Lengths(f func(account, deployment string, running, waiting int)) {
	for a := range s.all() {
		type lengths struct{ running, waiting int }
		lines := make(map[string]lengths, len(a.lines))
		for name, l := range a.lines {
			lines[name] = lengths{l.running, l.waiting.Len()}
		}
		a.unlock()
		for name, n := range lines {
			f(a.name, name, n.running, n.waiting)
		}
	}
}
