package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// The pauses between checks whether the next key is due: the clock may be set, and the store may fail.
const (
	identityCheck = time.Hour
	identityRetry = time.Minute
)

// currentIdentity returns the identity. If the next key is due, it switches to that first.
func currentIdentity(ctx context.Context, st *store.Store) (store.Identity, error) {
	identity, err := st.Identity(ctx, link.NewIdentity)
	if err != nil || !due(identity) {
		return identity, err
	}
	return st.ChangeIdentity(ctx, func(i *store.Identity) error {
		if !due(*i) {
			return nil
		}
		_, former, err := link.Identity(i.Key)
		*i = store.Identity{Key: i.Next, Former: former}
		return err
	})
}

// due reports whether the next key replaces the present one now.
func due(i store.Identity) bool { return len(i.Next) > 0 && !time.Now().Before(i.SwitchAt) }

// tunnelIdentity returns a stored identity for the hub.
func tunnelIdentity(i store.Identity) (tunnel.Identity, error) {
	next := ""
	if len(i.Next) > 0 {
		var err error
		if _, next, err = link.Identity(i.Next); err != nil {
			return tunnel.Identity{}, fmt.Errorf("loading the next tunnel identity: %w", err)
		}
	}
	return tunnel.Identity{Key: i.Key, NextPin: next, FormerPin: i.Former}, nil
}

// applyIdentity passes the identity in the store to the hub. It is called after the record changes, and
// when the next key is due.
func (l *Listener) applyIdentity(ctx context.Context, st *store.Store) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	hub := l.hub.Load()
	if hub == nil {
		return ErrNotListening
	}
	stored, err := currentIdentity(ctx, st)
	if err != nil {
		return err
	}
	identity, err := tunnelIdentity(stored)
	if err != nil {
		return err
	}
	if err := hub.SetIdentity(identity); err != nil {
		return err
	}
	l.watchIdentity(st, stored)
	return nil
}

// watchIdentity applies the next key when it is due. The caller holds l.mu.
func (l *Listener) watchIdentity(st *store.Store, stored store.Identity) {
	if l.identity != nil {
		l.identity.Stop()
	}
	wait := identityCheck
	if len(stored.Next) > 0 {
		wait = max(0, min(wait, time.Until(stored.SwitchAt)))
	}
	l.identity = time.AfterFunc(wait, func() { l.checkIdentity(st) })
}

// checkIdentity is called by the timer.
func (l *Listener) checkIdentity(st *store.Store) {
	err := l.applyIdentity(context.Background(), st)
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if g, ok := l.configurations.Newest(); ok {
		g.Logger.Error("failed to switch to the next tunnel identity; trying again", "error", err)
		l.identity.Reset(identityRetry)
	}
}
