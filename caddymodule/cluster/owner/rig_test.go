package owner

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// lostTime is when the connections of an edge that was killed end.
const lostTime = 3 * time.Second

var model = queue.Name{Account: "default", Deployment: "m"}

// testEdge is an edge with queues.
type testEdge struct {
	*Owners
	edges map[string]*testEdge
	log   strings.Builder

	doubted sync.Map // edges of calls of Suspect

	mu   sync.Mutex
	list map[string]store.EdgeState // as this edge knows it
	dead bool                       // it was killed: nothing it sends arrives
	lost context.Context            // its connections have ended
	end  context.CancelFunc
}

// newEdges starts edges with a limit of the model, in the order in which they are its owners.
func newEdges(t *testing.T, limit int, names ...string) (edges []*testEdge) {
	all, list := map[string]*testEdge{}, map[string]store.EdgeState{}
	for _, name := range names {
		list[name] = store.EdgeState{Edge: store.Edge{Name: name}, Report: new(store.Report)}
	}
	rank := func(edge string) uint64 { return tunnel.Rank(model.Account+"\x00"+model.Deployment, edge) }
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(rank(b), rank(a)) })
	for _, name := range names {
		e := &testEdge{edges: all, list: maps.Clone(list)}
		e.start(t, name, limit)
		all[name], edges = e, append(edges, e)
	}
	return edges
}

// start starts the program of an edge, also again.
func (e *testEdge) start(t *testing.T, name string, limit int) {
	queues := queue.New(func(n queue.Name) int {
		if n.Deployment == "" {
			return 0
		}
		return limit
	})
	queues.Limit(someLimits{}, slog.New(slog.DiscardHandler))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Owners = New(Options{
		Edge: name, Edges: e.known, Open: e.open, Suspect: func(edge string) { e.doubted.Store(edge, true) },
		Queues: queues, Logger: slog.New(slog.NewTextHandler(&e.log, nil)),
	})
	queues.Share(e.Owners.Enter)
	e.dead = false
	e.lost, e.end = context.WithCancel(t.Context())
}

// enter has a request of a key enter the queue of the model.
func (e *testEdge) enter(ctx context.Context, key string, length int, wait time.Duration) (queue.Permit, error) {
	return e.Queues.Enter(ctx, model, fair.Client{Owner: "default", Key: key}, queue.Bounds{Length: length, Wait: wait})
}

// waiting returns how many requests wait at the edge.
func (e *testEdge) waiting() (n int) {
	e.Queues.Lengths(func(_ queue.Name, waiting int) { n += waiting })
	return n
}

func (e *testEdge) known() []store.EdgeState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.list))
}

// learns changes what the edge knows of an edge.
func (e *testEdge) learns(edge string, reports, draining bool) {
	s := store.EdgeState{Edge: store.Edge{Name: edge, Draining: draining}}
	if reports {
		s.Report = new(store.Report)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list[edge] = s
}

// kill ends the program of the edge. The others notice it lostTime later.
func (e *testEdge) kill() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dead = true
	time.AfterFunc(lostTime, e.end)
}

func (e *testEdge) killed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dead
}

// open opens a stream to another edge.
func (e *testEdge) open(edge string) (link.Stream, error) {
	to := e.edges[edge]
	to.mu.Lock()
	lost, owners := to.lost, to.Owners
	to.mu.Unlock()
	if lost.Err() != nil {
		return nil, errors.New("there is no connection")
	}
	here, there := newStream(to)
	context.AfterFunc(lost, func() { here.fail(); there.fail() })
	go func() {
		if id, err := link.ReadRelayHeader(there); err != nil || id.Connector != "" {
			return
		}
		if m, err := link.ReadAsked(there); err == nil {
			owners.Serve(there, m.(link.Enter))
		}
	}()
	return here, nil
}

// stream is an end of a stream to an edge.
type stream struct {
	io.Reader
	r     *io.PipeReader
	w     *io.PipeWriter
	ctx   context.Context
	end   context.CancelFunc
	other *stream
	to    *testEdge
}

func newStream(to *testEdge) (here, there *stream) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	here, there = &stream{Reader: r1, r: r1, w: w2, to: to}, &stream{Reader: r2, r: r2, w: w1, to: to}
	here.other, there.other = there, here
	here.ctx, here.end = context.WithCancel(context.Background())
	there.ctx, there.end = context.WithCancel(context.Background())
	return here, there
}

// fail ends the stream with its connection.
func (s *stream) fail() {
	_ = s.r.CloseWithError(net.ErrClosed)
	_ = s.w.CloseWithError(net.ErrClosed)
	s.end()
}

func (s *stream) Write(b []byte) (int, error) {
	if s.to.killed() {
		return len(b), nil
	}
	return s.w.Write(b)
}

func (s *stream) Close() error {
	s.end()
	return s.w.Close()
}

func (s *stream) CancelRead(code quic.StreamErrorCode) {
	_ = s.r.CloseWithError(&quic.StreamError{ErrorCode: code, Remote: true})
	s.other.end()
}

func (s *stream) CancelWrite(code quic.StreamErrorCode) {
	_ = s.w.CloseWithError(&quic.StreamError{ErrorCode: code, Remote: true})
	s.end()
}

func (s *stream) SetReliableBoundary() {}

func (s *stream) SetReadDeadline(time.Time) error { return nil }

func (s *stream) Context() context.Context { return s.ctx }

// someLimits are the limits of each key.
type someLimits struct{}

func (someLimits) LimitsOf(string, string) (ofAccount, ofKey limits.UsageLimits) {
	return limits.UsageLimits{TokensPerDay: 1000}, limits.UsageLimits{TokensPerMinute: 100}
}

func (someLimits) SumsOf(context.Context, string, string) (day, month limits.Sums, err error) {
	return limits.Sums{Tokens: 7}, limits.Sums{Tokens: 70}, nil
}

func (someLimits) Crossed(string, string, limits.Crossing) {}
