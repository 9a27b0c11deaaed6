package pairing

import (
	"context"
	"maps"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// peer is a gateway of the cluster that has published its pairings.
type peer struct {
	pairings map[string]link.Pairing // by id; guarded by Service.mu
}

// publish sends the peers what is known here alone about a pairing.
func (s *Service) publish(account, id string) {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.mu.Lock()
	m := s.known(account, id)
	s.mu.Unlock()
	s.options.Publish(m)
}

// known returns what is known here alone about a pairing. The caller holds the lock.
func (s *Service) known(account, id string) link.Pairing {
	_, connected := s.tickets[id]
	return link.Pairing{ID: id, Account: account, Code: s.codes[id], Connected: connected}
}

// Pairings returns what peers must know about the pairings here.
func (s *Service) Pairings() (list []link.Pairing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range s.tickets {
		list = append(list, s.known(t.account, id))
	}
	for id, code := range s.codes {
		if p, ok := s.options.Store.FindPairing(code); ok && s.tickets[id] == nil {
			list = append(list, s.known(p.Account, id))
		}
	}
	return list
}

// OnPairing returns the handler of the messages of one peer about its pairings. They are forgotten
// when ctx ends.
func (s *Service) OnPairing(ctx context.Context) func(link.Pairing) {
	p := &peer{pairings: make(map[string]link.Pairing)}
	s.mu.Lock()
	s.peers[p] = struct{}{}
	s.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		delete(s.peers, p)
		left := maps.Clone(p.pairings)
		s.mu.Unlock()
		for _, m := range left {
			s.notify(m.Account)
		}
	})
	return func(m link.Pairing) { s.onPairing(p, m) }
}

// onPairing applies a message of a peer.
func (s *Service) onPairing(from *peer, m link.Pairing) {
	if m.Guess != "" {
		s.guesses.add(m.Guess, s.options.Now())
		return
	}
	s.mu.Lock()
	maps.DeleteFunc(from.pairings, func(id string, m link.Pairing) bool {
		p, ok := s.options.Store.Pairing(m.Account, id)
		return ok && p.State != store.PairingWaiting && p.State != store.PairingPending
	})
	from.pairings[m.ID] = m
	s.mu.Unlock()
	s.notify(m.Account)
}
