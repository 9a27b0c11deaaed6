package turns

import (
	"container/list"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// The defaults of [Request] and of [Scheduler.SetSwapAfter].
const (
	DefaultLength    = 64
	DefaultWait      = time.Minute
	DefaultSwapAfter = 30 * time.Second
)

var (
	// ErrFull is returned if the line is full, or if another request has displaced this one.
	ErrFull = errors.New("the queue is full")
	// ErrTimeout is returned if the request has waited for the maximum time.
	ErrTimeout = errors.New("timed out in the queue")
	// ErrOffline is returned if no connector of the deployment came online.
	ErrOffline = errors.New("no connector is online")
	// ErrRefused is returned if each server that remains has refused the request.
	ErrRefused = errors.New("each model server has refused the request")
	// ErrUnfit is returned if no server that remains has room for the prompt.
	ErrUnfit = errors.New("the prompt fits no model server that is online")
	// ErrRemoved is returned if the deployment does not exist.
	ErrRemoved = errors.New("the deployment was removed")
)

// Priority is the priority of a key.
type Priority int8

// Priorities.
const (
	Low Priority = iota - 1
	Normal
	High
)

// Deployment is what decides where its requests may go.
type Deployment struct {
	Connectors      []string
	Upstream, Model string    // "": the connector decides
	MaxConcurrency  int       // at each server; 0: no limit, but 4 at a server that loads one model at a time
	InOrder         bool      // an earlier connector is better than a later one
	LastOnline      time.Time // of one of its connectors, as far as the hub knows
}

// Connector is what is known of a connector from its newest tunnel.
type Connector struct {
	ID, Account string
	Tunnel      any // comparable; for [Place.Tunnel]
	MaxRequests int // of all its servers together; 0: no limit
	Servers     []Server
	// Resolve returns a server and its model for a deployment with this upstream and model.
	Resolve func(deployment, upstream, model string) (server, serverModel string, err error)
}

// Server is an upstream of a connector.
type Server struct {
	Name     string
	OneModel bool                    // it loads one model at a time
	Down     bool                    // it was reported down: nothing is loaded
	Lacks    func(model string) bool // it is known not to have a model; nil: it has all
}

// Request is a request that waits for a place.
type Request struct {
	Account, Deployment string
	Client              fair.Client
	Priority            Priority
	Judge               bool            // it goes before all others of its priority
	Arrived             time.Time       // of its first attempt: the age, which orders
	Waited              time.Duration   // in lines, by earlier attempts: compared with bounds
	Affinity            uint64          // equal for requests that should stay with a connector; 0: none
	Unfit               map[string]bool // ids of connectors that have no room for the prompt
	Refused             []string        // ids of connectors that have refused it in this attempt
	Length              int             // of the line; 0: DefaultLength; negative: it waits only for a connector
	Wait                time.Duration   // 0: DefaultWait; negative: as a negative Length
	ConnectWait         time.Duration   // after the last connector was lost
}

// Scheduler contains the lines of all deployments. It is safe for concurrent use.
type Scheduler struct {
	lookup   func(account, name string) (Deployment, bool)
	settings atomic.Pointer[settings]

	mu       sync.RWMutex
	accounts map[string]*account
}

type settings struct {
	swapAfter time.Duration
	share     func(places int) int
}

// account is the part of the scheduler that belongs to one account.
type account struct {
	scheduler *Scheduler
	name      string

	mu         sync.Mutex
	gone       bool // it was empty, and is no longer in the scheduler
	connectors map[string]*connector
	lines      map[string]*line
	shares     map[party]*shares
	clock      uint64 // counts arrivals and places
	marked     []*connector
}

// connector exists while it is online, has places in use, or belongs to a deployment with a line.
type connector struct {
	Connector
	account  *account
	online   bool
	servers  map[string]*server
	routes   []*route
	running  int
	lastUsed uint64 // clock of its newest place
	marked   bool
	oneModel bool // has a server that loads one model at a time
}

// server exists while it belongs to its connector or has places in use.
type server struct {
	Server
	connector *connector
	known     bool          // by the newest tunnel
	byLine    map[*line]int // running requests
	running   int
	loading
}

// line is the queue of one deployment. It exists while requests wait or run, or a connector is online.
type line struct {
	name string
	Deployment
	removed          bool
	lookups, applied uint64 // numbers of the newest lookup, and of the newest applied one
	routes           []*route
	online           int       // connectors
	usable           int       // routes that have a server
	oneModel         int       // of these, routes to a server that loads one model at a time
	lost             time.Time // when the last connector was lost
	uses             int       // running requests, and calls that need the line
	running          int

	waiting    list.List                      // of *waiter: those that have waited longest first
	turns      [6]fair.Turns[string, *waiter] // by rank
	byPriority [3]fair.Turns[string, *waiter] // by the priority of the key
	version    uint64                         // changes with the order of waiting requests, and with their servers
	nextRise   time.Time                      // no request rises before
}

// route is the way from a line to a connector of its deployment.
type route struct {
	line      *line
	connector *connector
	position  int
	server    *server // nil: the connector is offline, or does not resolve the deployment
	model     *model
	online    bool
	oneModel  bool
	doubtful  bool // the server was reported down, or lacks the model
	err       error
	first     *waiter // the first request that may go there
	seen      uint64  // version of the line when first was found
}

// New returns a scheduler without requests. lookup returns a deployment of an account.
func New(lookup func(account, name string) (Deployment, bool)) *Scheduler {
	s := &Scheduler{lookup: lookup, accounts: make(map[string]*account)}
	s.settings.Store(&settings{DefaultSwapAfter, func(places int) int { return places }})
	return s
}

// SetSwapAfter sets after which time a loaded model closes for another one.
func (s *Scheduler) SetSwapAfter(d time.Duration) { s.set(func(next *settings) { next.swapAfter = d }) }

// SetShare sets a function that returns this gateway's share of a number of places.
func (s *Scheduler) SetShare(f func(places int) int) { s.set(func(next *settings) { next.share = f }) }

func (s *Scheduler) set(change func(*settings)) {
	s.mu.Lock()
	next := *s.settings.Load()
	change(&next)
	s.settings.Store(&next)
	s.mu.Unlock()
	for a := range s.all() {
		for _, c := range a.connectors {
			a.mark(c)
		}
		for _, l := range a.lines {
			a.boundsChanged(l)
		}
		a.unlock()
	}
}

// all iterates over all accounts, locked. The caller must unlock each.
func (s *Scheduler) all() iter.Seq[*account] {
	return func(yield func(*account) bool) {
		s.mu.RLock()
		names := slices.Collect(maps.Keys(s.accounts))
		s.mu.RUnlock()
		for _, name := range names {
			if !yield(s.account(name)) {
				return
			}
		}
	}
}
