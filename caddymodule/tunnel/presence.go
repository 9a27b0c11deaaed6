package tunnel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	publishInterval = 100 * time.Millisecond // between two comparisons with what was published
	// activeRounds is how many of them there are between two counts of running requests.
	activeRounds = 10
	// maxQueued bounds the messages that wait for a peer that does not read.
	maxQueued = 1 << 16
)

var errBehind = errors.New("the peer does not read the messages about tunnels")

// presence publishes the tunnels of this gateway to its peers.
type presence struct {
	mu          sync.Mutex
	published   map[*Session]published
	subscribers map[*subscriber]struct{}
	running     bool // a goroutine publishes changes
}

// published is what peers know about a session.
type published struct {
	reported *states
	active   int
	suspect  bool
}

// subscriber is a peer.
type subscriber struct {
	queue []link.Message // guarded by presence.mu
	wake  chan struct{}
}

// Publish sends a message to all peers. It does not wait.
func (h *Hub) Publish(m link.Message) {
	h.presence.mu.Lock()
	defer h.presence.mu.Unlock()
	h.presence.queue(m)
}

// queue queues messages for all subscribers. The caller holds the lock.
func (p *presence) queue(messages ...link.Message) {
	for l := range p.subscribers {
		l.queue = append(l.queue, messages...)
		wait.Wake(l.wake, struct{}{})
	}
}

// Announce sends a peer all tunnels that take requests, the pairings, and each change. It returns nil when the hub is closed and all tunnels have ended.
func (h *Hub) Announce(ctx context.Context, send func(link.Message) error) error {
	p := &h.presence
	l := &subscriber{wake: make(chan struct{}, 1)}
	p.mu.Lock()
	for s, t := range p.published {
		l.queue = append(l.queue, s.describe(published{}, t)...)
	}
	if peers := h.options.Load().Peers; peers != nil {
		for _, m := range peers.Pairings() {
			l.queue = append(l.queue, m)
		}
	}
	p.subscribers[l] = struct{}{}
	if !p.running {
		p.running = true
		go h.publishChanges()
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.subscribers, l)
	}()
	wait.Wake(l.wake, struct{}{})
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.wake:
		}
		p.mu.Lock()
		queue, ended := l.queue, h.closing.Err() != nil && len(p.published) == 0
		l.queue = nil
		p.mu.Unlock()
		if len(queue) > maxQueued+2*h.count() {
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

// publishChanges publishes changes while there are subscribers.
func (h *Hub) publishChanges() {
	for i := 0; ; i++ {
		if !h.publishOnce(i%activeRounds == 0) {
			return
		}
		time.Sleep(publishInterval)
	}
}

// publishOnce publishes what has changed. It reports whether there are subscribers.
func (h *Hub) publishOnce(active bool) (subscribed bool) {
	p := &h.presence
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.subscribers) == 0 {
		p.running, p.published = false, map[*Session]published{}
		return false
	}
	defer panics.Recover(h.options.Load().Logger, "publishing the tunnels")
	subscribed = true
	h.queueChanges(active)
	return subscribed
}

// queueChanges queues what has changed since the last call for all subscribers. The caller holds
// the lock of the presence.
func (h *Hub) queueChanges(active bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var changes []link.Message
	p := &h.presence
	for _, s := range h.live {
		if !s.usable() {
			continue
		}
		before := p.published[s]
		now := published{reported: s.reported.Load(), active: before.active, suspect: s.suspect()}
		if active || before.reported == nil {
			now.active = s.Active()
		}
		if now != before {
			changes = append(changes, s.describe(before, now)...)
			p.published[s] = now
		}
	}
	for s := range p.published {
		if h.live[s.connector.ID] != s || !s.usable() {
			changes = append(changes, link.Tunnel{Session: s.id, Ended: true})
			delete(p.published, s)
		}
	}
	if len(changes) > 0 || h.closing.Err() != nil {
		p.queue(changes...)
	}
}

// describe returns the messages about what has changed. A report has its own: together with the
// hello it may be too large.
func (s *Session) describe(before, now published) []link.Message {
	rtt := s.conn.ConnectionStats().MinRTT.Microseconds()
	m := link.Tunnel{Session: s.id, Active: now.active, RTTMicros: rtt, Suspect: now.suspect}
	if before.reported == nil {
		m.Opened = &link.TunnelOpened{
			Hello: s.hello, Account: s.connector.Account, Name: s.connector.Name, Transport: s.conn.Transport(),
			Remote: s.conn.RemoteAddr().String(), Newer: s.newer, Since: s.since,
		}
	}
	messages := []link.Message{m}
	if now.reported != before.reported && *now.reported != nil {
		report := new(link.Report)
		for name, u := range *now.reported {
			report.Upstreams = append(report.Upstreams, link.UpstreamReport{
				Name: name, Reachable: u.Reachable, Models: slices.Clone(u.Models), Open: u.Open,
			})
		}
		messages = append(messages, link.Tunnel{
			Session: s.id, Report: report, Active: now.active, RTTMicros: rtt, Suspect: now.suspect,
		})
	}
	return messages
}
