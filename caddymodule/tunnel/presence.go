package tunnel

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	tellPause = 100 * time.Millisecond // between two looks at what has changed
	// activeLooks is how many looks there are between two reports of running requests.
	activeLooks = 10
	// maxTold bounds the messages that wait for a peer that does not read.
	maxTold = 1 << 16
)

var errBehind = errors.New("the peer does not read the messages about tunnels")

// presence tells the peers about the tunnels of this gateway.
type presence struct {
	mu        sync.Mutex
	told      map[*Session]told
	listeners map[*listener]struct{}
	running   bool // a goroutine looks for changes
}

// told is what peers know about a session.
type told struct {
	offer    *link.Update
	reported *states
	active   int
	suspect  bool
}

// listener is a peer that is told.
type listener struct {
	queue []link.Message // guarded by presence.mu
	wake  chan struct{}
}

// Tell sends a message to all peers that are told. It does not wait.
func (h *Hub) Tell(m link.Message) {
	h.presence.mu.Lock()
	defer h.presence.mu.Unlock()
	h.presence.queue(m)
}

// queue queues messages for all listeners. The caller holds the lock.
func (p *presence) queue(messages ...link.Message) {
	for l := range p.listeners {
		l.queue = append(l.queue, messages...)
		wake(l.wake)
	}
}

// Announce tells a peer about all tunnels that take requests, about the pairings, and about each
// change. It returns nil when the hub is closed and all tunnels have ended.
func (h *Hub) Announce(ctx context.Context, send func(link.Message) error) error {
	p := &h.presence
	l := &listener{wake: make(chan struct{}, 1)}
	p.mu.Lock()
	for s, t := range p.told {
		l.queue = append(l.queue, s.describe(told{}, t)...)
	}
	if peers := h.options.Load().Peers; peers != nil {
		for _, m := range peers.Pairings() {
			l.queue = append(l.queue, m)
		}
	}
	p.listeners[l] = struct{}{}
	if !p.running {
		p.running = true
		go h.look()
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.listeners, l)
	}()
	wake(l.wake)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.wake:
		}
		p.mu.Lock()
		queue, ended := l.queue, h.closing.Err() != nil && len(p.told) == 0
		l.queue = nil
		p.mu.Unlock()
		if len(queue) > maxTold+2*h.count() {
			return errBehind
		}
		for _, m := range queue {
			if err := send(m); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
	}
}

// look looks for changes while somebody listens.
func (h *Hub) look() {
	p := &h.presence
	for i := 0; ; i++ {
		p.mu.Lock()
		if len(p.listeners) == 0 {
			p.running, p.told = false, map[*Session]told{}
			p.mu.Unlock()
			return
		}
		h.tell(i%activeLooks == 0)
		p.mu.Unlock()
		time.Sleep(tellPause)
	}
}

// tell queues what has changed since the last call for all listeners. The caller holds the lock
// of the presence.
func (h *Hub) tell(active bool) {
	h.mu.RLock()
	sessions := slices.Collect(maps.Values(h.live))
	h.mu.RUnlock()
	var changes []link.Message
	p, live := &h.presence, make(map[*Session]bool, len(sessions))
	for _, s := range sessions {
		if !s.usable() {
			continue
		}
		live[s] = true
		before := p.told[s]
		now := told{offer: s.offer.Load(), reported: s.reported.Load(), active: before.active, suspect: s.suspect()}
		if active || before.offer == nil {
			now.active = s.Active()
		}
		if now != before {
			changes = append(changes, s.describe(before, now)...)
			p.told[s] = now
		}
	}
	for s := range p.told {
		if !live[s] {
			changes = append(changes, link.Tunnel{Session: s.id, Ended: true})
			delete(p.told, s)
		}
	}
	if len(changes) > 0 || h.closing.Err() != nil {
		p.queue(changes...)
	}
}

// describe returns the messages about what has changed. A report has its own: together with the
// hello it may be too large.
func (s *Session) describe(before, now told) []link.Message {
	m := link.Tunnel{Session: s.id, Active: now.active, Suspect: now.suspect}
	switch {
	case before.offer == nil:
		m.Opened = &link.TunnelOpened{
			Hello: s.hello, Account: s.connector.Account, Name: s.connector.Name, Transport: s.conn.Transport(),
			Remote: s.conn.RemoteAddr().String(), Newer: s.newer, Since: s.since,
			RTTMicros: s.conn.ConnectionStats().MinRTT.Microseconds(),
		}
		m.Opened.Hello.Upstreams, m.Opened.Hello.Routes = now.offer.Upstreams, now.offer.Routes
	case now.offer != before.offer:
		m.Offer = now.offer
	}
	messages := []link.Message{m}
	if now.reported != before.reported && *now.reported != nil {
		report := new(link.Report)
		for name, u := range *now.reported {
			report.Upstreams = append(report.Upstreams, link.UpstreamReport{
				Name: name, Reachable: u.Reachable, Models: slices.Clone(u.Models), Open: u.Open,
			})
		}
		messages = append(messages, link.Tunnel{Session: s.id, Report: report, Active: now.active, Suspect: now.suspect})
	}
	return messages
}
