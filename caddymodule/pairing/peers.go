package pairing

import (
	"context"
	"maps"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// heard is what one peer has told about its pairings.
type heard struct {
	pairings map[string]link.Pairing // by id; guarded by Service.mu
}

// tell tells the peers what is known here alone about a pairing.
func (s *Service) tell(account, id string) {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	m := s.known(account, id)
	s.mu.Unlock()
	s.options.Tell(m)
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

// Hear returns what to call with what one peer tells about its pairings, until ctx ends.
func (s *Service) Hear(ctx context.Context) func(link.Pairing) {
	h := &heard{pairings: make(map[string]link.Pairing)}
	s.mu.Lock()
	s.peers[h] = struct{}{}
	s.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		delete(s.peers, h)
		left := maps.Clone(h.pairings)
		s.mu.Unlock()
		for _, m := range left {
			s.notify(m.Account)
		}
	})
	return func(m link.Pairing) { s.hear(h, m) }
}

// hear notes what a peer has told.
func (s *Service) hear(h *heard, m link.Pairing) {
	if m.Guess != "" {
		s.guesses.add(m.Guess, s.options.Now())
		return
	}
	s.mu.Lock()
	maps.DeleteFunc(h.pairings, func(id string, m link.Pairing) bool {
		p, ok := s.options.Store.Pairing(m.Account, id)
		return ok && p.State != store.PairingWaiting && p.State != store.PairingPending
	})
	h.pairings[m.ID] = m
	s.mu.Unlock()
	s.notify(m.Account)
}
