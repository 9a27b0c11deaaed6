// Package kept holds responses in memory, so that clients can refer to them.
package kept

import (
	"bytes"
	"container/list"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Response is a kept response.
type Response struct {
	Model  string   // public name of the model
	Body   []byte   // the response object
	Input  [][]byte // its input items, including those of previous responses
	Output [][]byte // its output items
}

// Limits of kept responses.
const (
	TTL      = 30 * time.Minute
	MaxBytes = 64 << 20
	MaxSize  = 8 << 20 // of one response, in bytes: a million tokens of text have half of that
	MaxItems = 10_000  // of one response, input and output
)

// The overhead of a response and an item in bytes. The overhead of an item includes
// the cost of reading it for a request.
const (
	responseOverhead = 256
	itemOverhead     = 1 << 10
)

// Owner is the owner of a response: a key, or all keys of the account if Key is empty.
type Owner struct{ Account, Key string }

// Store keeps responses for their owners, for a limited time and up to a total size.
// When it is full, it evicts the oldest response of the largest key of the largest user in the
// largest account, so that none of them can displace others within their share. It is
// safe for concurrent use.
type Store struct {
	ttl   time.Duration
	limit int64 // bytes
	now   func() time.Time

	mu        sync.Mutex
	responses map[ref]*entry
	items     map[ref]item
	age       list.List // of *entry, the oldest first
	shares    share
}

// ref identifies a response or an item of an owner.
type ref struct {
	owner Owner
	id    string
}

// item is an item of a kept response.
type item struct {
	entry *entry
	raw   []byte
}

// entry is a response with its time and size.
type entry struct {
	ref     ref
	path    []string // the path of its share
	r       Response
	items   []string // ids of items
	expires time.Time
	size    int64
	byAge   *list.Element // in Store.age
	byOwner *list.Element // in the age of its owner's share
}

// share is a node in a tree of four levels: the whole store, an account, an owner of keys (a user or
// the account), and a key.
type share struct {
	size     int64 // bytes
	children map[string]*share
	age      list.List // of *entry, the oldest first; only for a key
}

// NewStore returns an empty store with the default limits.
func NewStore(now func() time.Time) *Store {
	return &Store{ttl: TTL, limit: MaxBytes, now: now, responses: make(map[ref]*entry), items: make(map[ref]item)}
}

// keep keeps a copy of a response, unless it is too large or has too many items.
func (s *Store) keep(at ref, user string, r Response) {
	e := &entry{ref: at, path: []string{at.owner.Account, user, at.owner.Key}, size: r.Size(), expires: s.now().Add(s.ttl)}
	items := len(r.Input) + len(r.Output)
	if e.size > s.limit || e.size-int64(items*itemOverhead) > MaxSize || items > MaxItems {
		return
	}
	// Clone, as the parts may be slices of much larger buffers.
	e.r = Response{Model: r.Model, Body: bytes.Clone(r.Body), Input: clone(r.Input), Output: clone(r.Output)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.responses[at]; ok {
		s.remove(old)
	}
	s.expire()
	s.responses[at] = e
	e.byAge = s.age.PushBack(e)
	e.byOwner = s.shares.add(e.size, e.path...).age.PushBack(e)
	for _, list := range [...][][]byte{e.r.Input, e.r.Output} {
		for _, raw := range list {
			if id := jsonscan.Text(raw, "id"); id != "" {
				e.items = append(e.items, id)
				s.items[ref{at.owner, id}] = item{e, raw}
			}
		}
	}
	for s.shares.size > s.limit {
		s.remove(s.shares.largest().largest().largest().age.Front().Value.(*entry))
	}
}

// clone copies a list of items.
func clone(list [][]byte) [][]byte {
	out := make([][]byte, len(list))
	for i, raw := range list {
		out[i] = bytes.Clone(raw)
	}
	return out
}

// add adds size to a share and to those along path below it, and returns the last one. Shares are
// created on first use and removed when they are empty.
func (r *share) add(size int64, path ...string) *share {
	r.size += size
	if len(path) == 0 {
		return r
	}
	child := r.children[path[0]]
	if child == nil {
		if r.children == nil {
			r.children = make(map[string]*share)
		}
		child = new(share)
		r.children[path[0]] = child
	}
	leaf := child.add(size, path[1:]...)
	if child.size == 0 {
		delete(r.children, path[0])
	}
	return leaf
}

// largest returns the largest child.
func (r *share) largest() (largest *share) {
	for _, child := range r.children {
		if largest == nil || child.size > largest.size {
			largest = child
		}
	}
	return largest
}

// Expire removes expired responses. Other methods do so, too. Call it periodically, to
// free memory even if no other method is called.
func (s *Store) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
}

// expire removes expired responses. The caller holds s.mu.
func (s *Store) expire() {
	now := s.now()
	for front := s.age.Front(); front != nil && !now.Before(front.Value.(*entry).expires); front = s.age.Front() {
		s.remove(front.Value.(*entry))
	}
}

// remove removes a response, and its items unless a newer response has them. The caller
// holds s.mu.
func (s *Store) remove(e *entry) {
	s.age.Remove(e.byAge)
	s.shares.add(-e.size, e.path...).age.Remove(e.byOwner)
	delete(s.responses, e.ref)
	for _, id := range e.items {
		at := ref{e.ref.owner, id}
		if s.items[at].entry == e {
			delete(s.items, at)
		}
	}
}

// Size returns the approximate memory size of a response.
func (r Response) Size() int64 {
	size := int64(responseOverhead + len(r.Model) + len(r.Body))
	for _, list := range [...][][]byte{r.Input, r.Output} {
		for _, raw := range list {
			size += int64(itemOverhead + len(raw))
		}
	}
	return size
}

// Scope decides which models a key may use.
type Scope interface {
	Allows(model string) bool
}

// View is the part of a store that a request can access: the responses of its owner
// whose model is in scope. The zero View keeps nothing.
type View struct {
	store *Store
	owner Owner
	user  string // the owner of the key; responses count towards its share
	scope Scope
}

// View returns the owner's view of the responses whose model is in scope. user is the owner of the
// request's key, a user or the account.
func (s *Store) View(owner Owner, user string, scope Scope) View {
	return View{s, owner, user, scope}
}

// Keeps reports whether responses are kept.
func (v View) Keeps() bool { return v.store != nil }

// Keep keeps a copy of a response under its id.
func (v View) Keep(id string, r Response) { v.store.keep(ref{v.owner, id}, v.user, r) }

// locked calls do with the locked store, unless v is the zero View.
func (v View) locked(do func(s *Store)) {
	if v.Keeps() {
		v.store.mu.Lock()
		defer v.store.mu.Unlock()
		v.store.expire()
		do(v.store)
	}
}

// Response returns a kept response. Its bytes must not be modified. ok is false if the
// response does not exist or is not accessible.
func (v View) Response(id string) (r Response, ok bool) {
	v.locked(func(s *Store) {
		if e := s.responses[ref{v.owner, id}]; e != nil {
			r, ok = e.r, true
		}
	})
	if !ok || !v.scope.Allows(r.Model) {
		return Response{}, false
	}
	return r, true
}

// Item returns an input or output item of a kept response.
func (v View) Item(id string) (raw []byte, ok bool) {
	var found item
	v.locked(func(s *Store) { found, ok = s.items[ref{v.owner, id}] })
	if !ok || !v.scope.Allows(found.entry.r.Model) {
		return nil, false
	}
	return found.raw, true
}

// Delete removes a response that Response has returned. It reports whether it was still there.
func (v View) Delete(id string) (removed bool) {
	v.locked(func(s *Store) {
		if e := s.responses[ref{v.owner, id}]; e != nil && v.scope.Allows(e.r.Model) {
			s.remove(e)
			removed = true
		}
	})
	return removed
}
