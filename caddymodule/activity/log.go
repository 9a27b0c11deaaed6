package activity

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/subscribe"
)

// Options configures a Log.
type Options struct {
	// Store is where the usage is saved. It is required and must be closed after the log.
	Store *store.Store
	// Path is the file of the requests; "": they are only in memory.
	Path string
	// Logger receives log entries; nil discards them.
	Logger *slog.Logger

	maxBytes int // of the file; 0: 64 MiB
}

// Log records requests by account. Its methods are safe for concurrent use.
type Log struct {
	store       *store.Store
	log         *slog.Logger
	subscribers subscribe.List[string] // accounts

	mu      sync.Mutex
	unsaved unsaved
	usage   map[usageKey]*usageRow
	people  map[peopleKey]*keyPeople

	file     *file
	searches *fair.Line // one search of the file at a time
	saving   sync.Mutex // locked while usage is saved; acquired before mu
	stop     func()
	worker   sync.WaitGroup
}

// New returns a log, which must be closed.
func New(o Options) *Log {
	l := &Log{
		store: o.Store, log: o.Logger, usage: make(map[usageKey]*usageRow),
		people:  make(map[peopleKey]*keyPeople),
		unsaved: unsaved{rows: make(map[string]map[unsavedKey]*Request)},
	}
	l.searches = fair.NewLine(func() int { return 1 })
	l.log = cmp.Or(l.log, slog.New(slog.DiscardHandler))
	l.file = &file{path: o.Path, maxBytes: cmp.Or(o.maxBytes, maxBytes), log: l.log}
	l.file.known = func(account string) bool { _, ok := l.store.Account(account); return ok }
	l.file.mask = l.mask
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.worker.Go(func() { l.run(ctx) })
	return l
}

// Record adds a completed request. It does no I/O and needs the lock only briefly.
func (l *Log) Record(id string, r Request) {
	r.clip()
	l.mu.Lock()
	l.countUsage(id, &r)
	l.unsaved.add(id, &r)
	l.mu.Unlock()
	l.subscribers.Now().Call(id)
}

// Refuse adds a request without a valid key. It is not part of the usage. Unauthenticated clients can send
// many, so subscribers are called only for the first request of an entry.
func (l *Log) Refuse(id string, r Request) {
	r.clip()
	l.mu.Lock()
	first := l.unsaved.add(id, &r)
	l.mu.Unlock()
	if first {
		l.subscribers.Now().Call(id)
	}
}

// Subscribe registers f to be called after each request of any account. f may use the log. The request
// waits for f, which must return quickly. stop removes f; calls in progress still complete.
func (l *Log) Subscribe(f func(account string)) (stop func()) { return l.subscribers.Add(f) }
