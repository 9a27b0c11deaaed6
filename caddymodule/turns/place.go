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
	Tunnel                   any           // the newest one of the connector, when the place was taken
	Waited                   time.Duration // in lines, with earlier attempts

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

// shares are the shares of a party. They exist while it has requests.
type shares struct {
	uses   int    // requests that wait or run
	cameAt uint64 // clock
	at     map[*connector]share
}

// share is the share of a party at a connector.
type share struct {
	running int
	served  uint64 // clock of its newest place, or when it came
}

// freeShares contains shares without requests, to avoid allocations.
var freeShares = sync.Pool{New: func() any { return &shares{at: make(map[*connector]share)} }}

func (s *shares) get(c *connector) share {
	here, ok := s.at[c]
	if !ok {
		here.served = s.cameAt
	}
	return here
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

// part removes a request from a client's parties.
func (a *account) part(p *Place) {
	for i, party := range parties(p.client) {
		s := p.shares[i]
		if s.uses--; s.uses == 0 {
			delete(a.shares, party)
			clear(s.at)
			freeShares.Put(s)
		}
	}
}

// grant takes a place at a route's server. The line has a use for it.
func (a *account) grant(p *Place, r *route, now time.Time) {
	c, s, l := r.connector, r.server, r.line
	a.clock++
	c.running++
	c.lastUsed = a.clock
	s.running++
	s.byLine[l]++
	l.running++
	p.Connector, p.Server, p.Model, p.Tunnel, p.server, p.clock = c.ID, s.Name, r.model.name, c.Tunnel, s, a.clock
	for i, all := range p.shares {
		here := all.get(c)
		p.before[i] = here.served
		all.at[c] = share{here.running + 1, a.clock}
	}
	if s.OneModel {
		s.begin(a, p, r.model, now)
		a.mark(c) // for the timer
	}
}

// Answered reports that the head of the answer has come. The turn of a model counts from its first one.
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
	for i, all := range p.shares {
		here := all.at[c]
		here.running--
		if unused && here.served == p.clock {
			here.served = p.before[i]
		}
		all.at[c] = here
	}
	a.part(p)
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
	Swapping          time.Duration // from the first requests of loaded models to the heads of their answers, in sum
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

// Server returns the state of a server, without a loaded model and swaps if it is not known.
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
