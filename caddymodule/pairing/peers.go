package pairing

import (
	"context"
	"maps"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// peerPairings has the pairings that a peer has published.
type peerPairings struct {
	byID map[string]link.Pairing // by id; guarded by Service.mu
}

// publish sends the peers the message about a pairing.
func (s *Service) publish(account, id string) {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.mu.Lock()
	m := s.message(account, id)
	s.mu.Unlock()
	s.options.Publish(m)
}

// message returns the facts about a pairing that only this gateway knows. The caller holds the lock.
func (s *Service) message(account, id string) link.Pairing {
	_, connected := s.tickets[id]
	return link.Pairing{ID: id, Account: account, Code: s.codes[id], Connected: connected}
}

// Pairings returns the messages about the pairings here, for a new peer.
func (s *Service) Pairings() (list []link.Pairing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range s.tickets {
		list = append(list, s.message(t.account, id))
	}
	for id, code := range s.codes {
		if p, ok := s.options.Store.FindPairing(code); ok && s.tickets[id] == nil {
			list = append(list, s.message(p.Account, id))
		}
	}
	return list
}

// OnPairing returns the handler of one peer's messages about its pairings. When ctx ends, the
// service forgets these pairings.
func (s *Service) OnPairing(ctx context.Context) func(link.Pairing) {
	p := &peerPairings{byID: make(map[string]link.Pairing)}
	s.mu.Lock()
	s.peers[p] = struct{}{}
	s.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		delete(s.peers, p)
		left := maps.Clone(p.byID)
		s.mu.Unlock()
		for _, m := range left {
			s.notify(m.Account)
		}
	})
	return func(m link.Pairing) { s.onPairing(p, m) }
}

// onPairing applies a message of a peer.
func (s *Service) onPairing(from *peerPairings, m link.Pairing) {
	if m.Guess != "" {
		s.guesses.count(m.Guess, s.options.Now())
		return
	}
	s.mu.Lock()
	maps.DeleteFunc(from.byID, func(id string, m link.Pairing) bool {
		p, ok := s.options.Store.Pairing(m.Account, id)
		return ok && p.State != store.PairingWaiting && p.State != store.PairingPending
	})
	from.byID[m.ID] = m
	s.mu.Unlock()
	s.notify(m.Account)
}
