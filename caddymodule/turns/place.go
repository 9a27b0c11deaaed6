package turns

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// Place lets a request run at a server.
type Place struct {
	Connector, Server, Model string
	Tunnel                   any           // the connector's newest tunnel when the place was taken
	Waited                   time.Duration // in lines, including earlier attempts

	account    *account
	line       *line
	server     *server
	client     fair.Client
	shares     [2]*shares
	rank       int
	queued     bool // it has used a turn of its client
	ended      bool
	turnNumber uint64 // number of the server's turn
	clock      uint64
	before     [2]uint64 // clocks of the former places of the parties at the connector
}

// party names an owner, or one of the keys of an owner.
type party struct {
	fair.Client
	isOwner bool
}

// parties returns the owner and the key of a client.
func parties(c fair.Client) [2]party {
	return [2]party{{fair.Client{Owner: c.Owner}, true}, {c, false}}
}

// shares counts what a party uses at each connector. It exists while requests of the party wait or run.
type shares struct {
	uses   int    // requests that wait or run
	cameAt uint64 // clock of its first request
	at     map[*connector]share
}

// share is the share of a party at a connector.
type share struct {
	running int
	served  uint64 // clock of its newest place; without a place, shares.cameAt
}

// freeShares contains shares without requests, to avoid allocations.
var freeShares = sync.Pool{New: func() any { return &shares{at: make(map[*connector]share)} }}

func (s *shares) get(c *connector) share {
	current, ok := s.at[c]
	if !ok {
		current.served = s.cameAt
	}
	return current
}

// join adds a request to a client's parties.
func (a *account) join(p *Place) {
	for i, party := range parties(p.client) {
		s := a.shares[party]
		if s == nil {
			s = freeShares.Get().(*shares)
			a.clock++
			s.cameAt = a.clock
			a.shares[party] = s
		}
		s.uses++
		p.shares[i] = s
	}
}

// leave removes a request from a client's parties.
func (a *account) leave(p *Place) {
	for i, party := range parties(p.client) {
		s := p.shares[i]
		if s.uses--; s.uses == 0 {
			delete(a.shares, party)
			clear(s.at)
			freeShares.Put(s)
		}
	}
}

// grant takes a place at a route's server. The caller has counted it in the line's uses.
func (a *account) grant(p *Place, r *route, now time.Time) {
	c, s, l := r.connector, r.server, r.line
	a.clock++
	c.running++
	c.lastUsed = a.clock
	s.running++
	s.byLine[l]++
	l.running++
	p.Connector, p.Server, p.Model, p.Tunnel, p.server, p.clock = c.ID, s.Name, r.model.name, c.Tunnel, s, a.clock
	for i, shares := range p.shares {
		current := shares.get(c)
		p.before[i] = current.served
		shares.at[c] = share{current.running + 1, a.clock}
	}
	if s.OneModel {
		s.begin(a, p, r.model, now)
		a.mark(c) // for the timer
	}
}

// Answered records that the head of the answer has arrived. The turn of a model counts from the first head.
func (p *Place) Answered() {
	a := p.account
	a.mu.Lock()
	defer a.unlock()
	if !p.ended && p.server.OneModel {
		p.server.answered(p, time.Now())
		a.mark(p.server.connector) // for the timer
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
	s, l := p.server, p.line
	c := s.connector
	c.running--
	s.running--
	l.running--
	if s.byLine[l]--; s.byLine[l] == 0 {
		delete(s.byLine, l)
	}
	if unused && p.queued {
		l.turns[p.rank].Return(p.client.Path())
		l.version++
	}
	for i, shares := range p.shares {
		current := shares.at[c]
		current.running--
		if unused && current.served == p.clock {
			current.served = p.before[i]
		}
		shares.at[c] = current
	}
	a.leave(p)
	s.finish(p, unused)
	a.release(l)
	a.mark(c)
	if !s.known {
		a.changed(c)
	}
}

// ServerState is the state of a server that loads one model at a time.
type ServerState struct {
	Connector, Server string
	Loaded            string // "": unknown
	Swaps             int
	Swapping          time.Duration // sum of the times from a model's first request to the head of its answer
}

// Servers returns the states of an account's servers that load one model at a time.
func (s *Scheduler) Servers(account string) (states []ServerState) {
	a := s.account(account)
	defer a.unlock()
	for _, c := range a.connectors {
		for _, srv := range c.servers {
			if srv.OneModel {
				states = append(states, srv.state())
			}
		}
	}
	slices.SortFunc(states, func(x, y ServerState) int {
		return cmp.Or(cmp.Compare(x.Connector, y.Connector), cmp.Compare(x.Server, y.Server))
	})
	return states
}

// Server returns the state of a server, the zero state if it is not known.
func (s *Scheduler) Server(account, connector, name string) (state ServerState) {
	a := s.account(account)
	defer a.unlock()
	if c := a.connectors[connector]; c != nil && c.servers[name] != nil {
		state = c.servers[name].state()
	}
	return state
}

func (s *server) state() ServerState {
	state := ServerState{Connector: s.connector.ID, Server: s.Name, Swaps: s.swaps, Swapping: s.swapping}
	if s.loaded != nil {
		state.Loaded = s.loaded.name
	}
	return state
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

// Lengths calls f for each deployment with a line. It holds no lock during the calls.
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
