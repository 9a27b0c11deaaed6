package store

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/subscribe"
)

// Options adjusts New. The zero value is right for a gateway.
type Options struct {
	Logger *slog.Logger     // nil: nothing is logged
	Now    func() time.Time // of the times in records; nil: time.Now
}

// Store gives the records of a KV their meaning. Its methods are safe for
// concurrent use.
type Store struct {
	kv   KV
	log  *slog.Logger
	now  func() time.Time
	view atomic.Pointer[view]

	subscribers subscribe.List[Change]

	mu       sync.Mutex
	applied  int64         // revision of the view, once its callbacks have run
	progress chan struct{} // closed and replaced when applied changes or closed is set
	closed   bool
	unsaved  []*use // to be written

	stop    context.CancelFunc // of the goroutines
	workers sync.WaitGroup
}

// New reads everything in kv into memory, creates the default account if there
// is none, and takes kv over: Close closes it. When New fails, kv is still the
// caller's.
func New(kv KV, o Options) (*Store, error) {
	s := &Store{kv: kv, log: o.Logger, now: o.Now, progress: make(chan struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.view.Store(new(view))
	ctx, stop := context.WithCancel(context.Background())
	if err := s.createDefaultAccount(ctx); err != nil {
		stop()
		return nil, err
	}
	watcher, err := s.load(ctx, true)
	if err != nil {
		stop()
		return nil, err
	}
	s.stop = stop
	s.workers.Go(func() { s.follow(ctx, watcher) })
	s.workers.Go(func() { s.saveUses(ctx) })
	s.workers.Go(func() { s.sweepRegularly(ctx) })
	return s, nil
}

func (s *Store) createDefaultAccount(ctx context.Context) error {
	r := &accountRecord{Account: Account{ID: DefaultAccount, Name: DefaultAccount, CreatedAt: s.time()}}
	op, err := encode(accountKind.path("", r.ID), r)
	if err != nil {
		return err
	}
	// No retry: if the compare does not hold, there is one.
	_, err = s.kv.Txn(ctx, Txn{If: []Compare{{Key: op.Key}}, Then: []Op{op}})
	if err != nil {
		return fmt.Errorf("creating the default account: %w", err)
	}
	return nil
}

// Close writes the uses that Touch has saved up and closes the KV. Reads keep
// giving the last view, for requests that still run; writes fail with
// ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.closed = true
	s.advance(s.applied)
	s.mu.Unlock()
	s.stop()
	s.workers.Wait()
	return errors.Join(s.flush(context.Background()), s.kv.Close())
}

// time is now as records have it: UTC, in whole milliseconds.
func (s *Store) time() time.Time { return s.now().UTC().Truncate(time.Millisecond) }

// FindKey returns the key with this secret, also when it is revoked: ask
// Revoked. It takes no lock and allocates nothing.
//
// The lookup compares SHA-256 hashes and not in constant time; what its time
// reveals of stored hashes does not help to find a secret that has one.
func (s *Store) FindKey(secret string) (*LiveKey, bool) {
	hash, ok := hashSecret(prefixSecret, secret)
	if !ok {
		return nil, false
	}
	r, ok := s.view.Load().keys.byHash.get(hash)
	if !ok {
		return nil, false
	}
	return r.live, true
}

// find returns the record of a secret.
func find[P any](c *collection[P], prefix, secret string) (P, bool) {
	hash, ok := hashSecret(prefix, secret)
	if !ok {
		var none P
		return none, false
	}
	return c.byHash.get(hash)
}

// AuthenticateConnector returns the connector with this id if secret is its
// secret, or the new one of a rotation, else ErrUnauthenticated. It takes no
// lock, and the same time for all wrong secrets.
func (s *Store) AuthenticateConnector(id, secret string) (Connector, error) {
	c, known := s.view.Load().connectors.named(id)
	if !known {
		c = new(connectorRecord) // with a hash that nothing has
	}
	hash, ok := hashSecret("", secret)
	same := subtle.ConstantTimeCompare(hash[:], c.Hash[:])
	for _, next := range c.Next {
		same |= subtle.ConstantTimeCompare(hash[:], next.Hash[:])
	}
	if !known || !ok || same != 1 {
		return Connector{}, Errorf(ErrUnauthenticated, "the tunnel token is not valid: its connector was removed, or its secret is wrong")
	}
	return c.Connector, nil
}

// MatchConnector reports whether match accepts the SHA-256 of a secret that
// AuthenticateConnector accepts of this connector.
func (s *Store) MatchConnector(id string, match func(secretHash []byte) bool) bool {
	c, known := s.view.Load().connectors.named(id)
	return known && (match(c.Hash[:]) || slices.ContainsFunc(c.Next, func(n nextSecret) bool { return match(n.Hash[:]) }))
}

// Account returns the account with this id.
func (s *Store) Account(id string) (Account, bool) {
	r, ok := s.view.Load().accounts.named(id)
	if !ok {
		return Account{}, false
	}
	return r.Account, true
}

// Accounts returns all accounts by id.
func (s *Store) Accounts() []Account {
	return list(&s.view.Load().accounts, "", func(r *accountRecord) (Account, bool) { return r.Account, true })
}

// Keys returns the keys of an account, the revoked ones too, in the order of
// their creation.
func (s *Store) Keys(account string) []Key {
	return list(&s.view.Load().keys, account, func(r *keyRecord) (Key, bool) { return r.live.Key(), true })
}

// Connector returns the connector with this id, of whatever account.
func (s *Store) Connector(id string) (Connector, bool) {
	r, ok := s.view.Load().connectors.named(id)
	if !ok {
		return Connector{}, false
	}
	return r.current(), true
}

// Connectors returns the connectors of an account in the order of their
// creation.
func (s *Store) Connectors(account string) []Connector {
	return list(&s.view.Load().connectors, account, func(r *connectorRecord) (Connector, bool) { return r.current(), true })
}

// Deployment returns the deployment with this name. It takes no lock and
// allocates nothing.
func (s *Store) Deployment(account, name string) (Deployment, bool) {
	r, ok := s.view.Load().deployments.byID.get(key{account, name})
	if !ok {
		return Deployment{}, false
	}
	return r.Deployment, true
}

// Deployments returns the deployments of an account by name.
func (s *Store) Deployments(account string) []Deployment {
	return list(&s.view.Load().deployments, account, func(r *deploymentRecord) (Deployment, bool) { return r.Deployment, true })
}

// Stats counts what the store holds.
func (s *Store) Stats() Stats {
	v := s.view.Load()
	stats := Stats{
		Accounts: v.accounts.byID.size, Keys: v.keys.byID.size, Connectors: v.connectors.byID.size,
		Deployments: v.deployments.byID.size, Users: v.users.byID.size, Revision: v.revision,
	}
	for _, r := range v.keys.byID.all() {
		if r.live.Revoked() {
			stats.RevokedKeys++
		}
	}
	return stats
}

// Subscribe has f called for each change of a record that Change has a kind
// for, after the reads show it, and before the write that made it returns. It may
// be called for a write that changed nothing. f runs on the goroutine that brings
// the view up to date: it must return soon and must not write to the store. stop
// ends it, but for a call that is running.
func (s *Store) Subscribe(f func(Change)) (stop func()) { return s.subscribers.Add(f) }
