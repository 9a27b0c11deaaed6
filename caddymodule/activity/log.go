package activity

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/subscribe"
)

const (
	// maxRecent is the number of requests that are listed for an account.
	maxRecent = 200
	// maxRefused is the number of entries for requests without a valid key. They do not displace other
	// requests.
	maxRefused = 50
)

// Options configures a Log.
type Options struct {
	// Store is where the log is saved. It is required and must be closed after the log.
	Store *store.Store
	// Logger; nil discards.
	Logger *slog.Logger
}

// Log records requests by account. Its methods are safe for concurrent use.
type Log struct {
	store       *store.Store
	log         *slog.Logger
	subscribers subscribe.List[string] // accounts

	mu         sync.Mutex
	accounts   map[string]*account
	usage      map[rowKey]*row
	connectors map[string]*connectorDay
	fresh      []rowKey      // rows of days with requests that saveQuotas has not seen
	counted    chan struct{} // receives an item after fresh gets its first row

	saving sync.Mutex // locked while usage is saved; acquired before mu
	stop   context.CancelFunc
	worker sync.WaitGroup
}

// New returns a log, which must be closed.
func New(o Options) *Log {
	l := &Log{
		store: o.Store, log: o.Logger, accounts: make(map[string]*account), usage: make(map[rowKey]*row),
		connectors: make(map[string]*connectorDay),
		counted:    make(chan struct{}, 1),
	}
	l.log = cmp.Or(l.log, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.worker.Go(func() { l.run(ctx) })
	return l
}

// Record adds a completed request. It does no I/O and needs the lock only briefly.
func (l *Log) Record(id string, r Request) {
	r.clip()
	l.mu.Lock()
	l.account(id).record(&r)
	l.count(id, &r)
	l.through(&r)
	l.mu.Unlock()
	l.subscribers.Now().Call(id)
}

// Refuse adds a request without a valid key. Requests of the same minute, key and error share an
// entry, because unauthenticated clients can send many. They are not part of the usage.
func (l *Log) Refuse(id string, r Request) {
	r.clip()
	l.mu.Lock()
	first := l.account(id).refuse(&r)
	l.mu.Unlock()
	if first {
		l.subscribers.Now().Call(id)
	}
}

// Subscribe registers f to be called after each request of any account. f may use the log. The request
// waits for f, which must return quickly. stop removes f; calls in progress still complete.
func (l *Log) Subscribe(f func(account string)) (stop func()) { return l.subscribers.Add(f) }
