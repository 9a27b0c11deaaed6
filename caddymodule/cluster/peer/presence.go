package peer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	publishInterval = 100 * time.Millisecond // between two comparisons with the published state
	// activeRounds is the number of comparisons for each count of running requests.
	activeRounds = 10
	// maxQueued bounds the messages that wait for a peer that does not read.
	maxQueued = 1 << 16
)

var errBehind = errors.New("the peer does not read the messages about tunnels")

// presence publishes the tunnels of this gateway to its peers.
type presence struct {
	mu          sync.Mutex
	published   map[*tunnel.Session]tunnel.Published
	subscribers map[*subscriber]struct{}
	running     bool // a goroutine publishes changes
}

// subscriber is a peer.
type subscriber struct {
	queue []link.Message // guarded by presence.mu
	wake  chan struct{}
}

// Publish sends a message to all peers. It does not wait.
func (l *Links) Publish(m link.Message) {
	l.presence.mu.Lock()
	defer l.presence.mu.Unlock()
	l.presence.queue(m)
}

// queue queues messages for all subscribers. The caller holds the lock.
func (p *presence) queue(messages ...link.Message) {
	for s := range p.subscribers {
		s.queue = append(s.queue, messages...)
		wait.Wake(s.wake, struct{}{})
	}
}

// announce sends a peer all tunnels that take requests, the pairings, and all changes, until ctx ends.
func (l *Links) announce(ctx context.Context, send func(link.Message) error) error {
	p := &l.presence
	s := l.subscribe()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.subscribers, s)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		}
		p.mu.Lock()
		queue, limit := s.queue, maxQueued+2*len(p.published)
		s.queue = nil
		p.mu.Unlock()
		if len(queue) > limit {
			return errBehind
		}
		for _, m := range queue {
			if err := send(m); err != nil {
				return err
			}
		}
	}
}

// subscribe adds a peer, and queues the published state for it.
func (l *Links) subscribe() *subscriber {
	p := &l.presence
	s := &subscriber{wake: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	for session, known := range p.published {
		s.queue = append(s.queue, session.Messages(tunnel.Published{}, known)...)
	}
	for _, m := range l.Gateway.Pairings() {
		s.queue = append(s.queue, m)
	}
	wait.Wake(s.wake, struct{}{})
	p.subscribers[s] = struct{}{}
	if !p.running {
		p.running = true
		go l.publishChanges()
	}
	return s
}

// publishChanges publishes changes while there are subscribers.
func (l *Links) publishChanges() {
	for i := 0; ; i++ {
		if !l.publishOnce(i%activeRounds == 0) {
			return
		}
		time.Sleep(publishInterval)
	}
}

// publishOnce publishes changes. It reports whether there are subscribers.
func (l *Links) publishOnce(active bool) (subscribed bool) {
	p := &l.presence
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.subscribers) == 0 {
		p.running, p.published = false, map[*tunnel.Session]tunnel.Published{}
		return false
	}
	defer panics.Recover(l.Logger, "publishing the tunnels")
	subscribed = true
	if hub := l.hub.Load(); hub != nil {
		if changes := hub.Changes(p.published, active); len(changes) > 0 {
			p.queue(changes...)
		}
	}
	return subscribed
}
