package store

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
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

	mu          sync.Mutex
	applied     int64         // revision of the view, once its callbacks have run
	progress    chan struct{} // closed and replaced when applied changes or closed is set
	closed      bool
	subscribers []*subscriber // replaced, never changed
	unsaved     []noted       // whose last use is to be written

	stop    context.CancelFunc // of the goroutines
	workers sync.WaitGroup
}

type subscriber struct{ f func(Change) }

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
	a := accountRecord{version{recordVersion}, Account{ID: DefaultAccount, Name: DefaultAccount, CreatedAt: s.time()}}
	op, err := encode(accountPath(a.ID), a)
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
// tells about stored hashes does not help to find a secret that has one.
func (s *Store) FindKey(secret string) (*LiveKey, bool) {
	hash, ok := hashSecret(prefixSecret, secret)
	if !ok {
		return nil, false
	}
	k, ok := s.view.Load().keysByHash.get(hash)
	return k, ok
}

// AuthenticateConnector returns the connector with this id if secret is its
// secret, or the new one of a rotation, else ErrUnauthenticated. It takes no
// lock, and the same time for all wrong secrets.
func (s *Store) AuthenticateConnector(id, secret string) (Connector, error) {
	// For an unknown id this compares with a hash that nothing has.
	c, known := s.view.Load().connectors.get(id)
	hash, ok := hashSecret("", secret)
	same := subtle.ConstantTimeCompare(hash[:], c.Hash[:])
	for _, next := range c.Next {
		same |= subtle.ConstantTimeCompare(hash[:], next.Hash[:])
	}
	if !known || !ok || same != 1 {
		return Connector{}, fail(ErrUnauthenticated, "the tunnel token is not valid: its connector was removed, or its secret is wrong")
	}
	return c.Connector, nil
}

// Account returns the account with this id.
func (s *Store) Account(id string) (Account, bool) {
	a, ok := s.view.Load().accounts.get(id)
	return a, ok
}

// Accounts returns all accounts by id.
func (s *Store) Accounts() []Account {
	var out []Account
	for _, a := range s.view.Load().accounts.all() {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b Account) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Keys returns the keys of an account, the revoked ones too, in the order of
// their creation.
func (s *Store) Keys(account string) []Key {
	var out []Key
	for _, k := range s.view.Load().keys.all() {
		if k.Account() == account {
			out = append(out, k.Key())
		}
	}
	slices.SortFunc(out, func(a, b Key) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Connector returns the connector with this id, of whatever account.
func (s *Store) Connector(id string) (Connector, bool) {
	c, ok := s.view.Load().connectors.get(id)
	return c.current(), ok
}

// Connectors returns the connectors of an account in the order of their
// creation.
func (s *Store) Connectors(account string) []Connector {
	var out []Connector
	for _, c := range s.view.Load().connectors.all() {
		if c.Account == account {
			out = append(out, c.current())
		}
	}
	slices.SortFunc(out, func(a, b Connector) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Deployment returns the deployment with this name. It takes no lock and
// allocates nothing.
func (s *Store) Deployment(account, name string) (Deployment, bool) {
	d, ok := s.view.Load().deployments.get(deploymentName{account, name})
	return d, ok
}

// Deployments returns the deployments of an account by name.
func (s *Store) Deployments(account string) []Deployment {
	var out []Deployment
	for _, d := range s.view.Load().deployments.all() {
		if d.Account == account {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b Deployment) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Stats counts what the store holds.
func (s *Store) Stats() Stats {
	v := s.view.Load()
	stats := Stats{
		Accounts: v.accounts.size, Keys: v.keys.size, Connectors: v.connectors.size,
		Deployments: v.deployments.size, Users: v.users.size, Revision: v.revision,
	}
	for _, k := range v.keys.all() {
		if k.Revoked() {
			stats.RevokedKeys++
		}
	}
	return stats
}

// Subscribe has f called for each change of a record that Change has a kind
// for, after the reads show it, and before the write that made it returns. Now and then a change is told though nothing differs. f runs on
// the goroutine that brings the view up to date: it must return soon and must
// not write to the store. stop ends it, but for a call that is running.
func (s *Store) Subscribe(f func(Change)) (stop func()) {
	sub := &subscriber{f}
	s.mu.Lock()
	s.subscribers = append(slices.Clip(s.subscribers), sub)
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.subscribers = slices.DeleteFunc(slices.Clone(s.subscribers), func(o *subscriber) bool { return o == sub })
	}
}
