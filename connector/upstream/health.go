package upstream

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// healthInterval is how often a model server is asked for its models while
	// nothing shows that it has changed.
	healthInterval = time.Minute
	// The pauses after a question that failed double from the first to the last.
	firstHealthPause = time.Second
	lastHealthPause  = 30 * time.Second
	// missingRest and brokenRest are the least time between two questions, after an
	// answer that may mean a missing model, and after a connection that broke.
	missingRest = 10 * time.Second
	brokenRest  = 2 * time.Second
)

// The states of an upstream.
const (
	StateReachable = "reachable"
	StateDown      = "down"
	StateUnknown   = "unknown" // it was not asked yet, or takes long to answer
)

// health is the state of one model server. The zero value is ready.
type health struct {
	reachable atomic.Bool // what requests look at

	mu       sync.Mutex
	known    bool
	report   link.UpstreamReport // its models are never changed in place
	failures int                 // in a row
	asked    time.Time           // last
	next     time.Time           // when it is to be asked; zero: now
	asking   bool
}

// Prober keeps the health of an agent's upstreams.
type Prober struct {
	logger   *slog.Logger
	Interval time.Duration // between two questions, while nothing shows a change
	wake     chan struct{} // room for one: look which upstreams are to be asked

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
}

// NewProber returns a prober that is ready to run.
func NewProber(logger *slog.Logger) *Prober {
	return &Prober{logger: logger, Interval: healthInterval, wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Look makes the prober check which upstreams are due.
func (p *Prober) Look() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Changed returns a channel that is closed when something has changed since the call.
func (p *Prober) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

func (p *Prober) notify() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// Run asks upstreams for their models, each seldom and once at a time, until ctx
// ends. upstreams returns the upstreams that there are now.
func (p *Prober) Run(ctx context.Context, upstreams func() Set) {
	var asking sync.WaitGroup
	defer asking.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last Set
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.wake:
		}
		current := upstreams()
		if !maps.Equal(current, last) {
			last = maps.Clone(current)
			p.notify()
		}
		wait := p.Interval
		for _, u := range current {
			pause, due := u.health.due(time.Now())
			if due {
				asking.Go(func() { p.ask(ctx, u) })
			}
			wait = min(wait, pause)
		}
		timer.Reset(wait)
	}
}

// due reports whether the upstream is to be asked now, which the caller then has to
// do, or else in how long.
func (h *health) due(now time.Time) (pause time.Duration, due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asking {
		return healthInterval, false // its end wakes
	}
	if pause = h.next.Sub(now); pause > 0 {
		return pause, false
	}
	h.asking, h.asked = true, now
	return healthInterval, true
}

// ask asks one upstream for its models, and notes the answer.
func (p *Prober) ask(ctx context.Context, u *Server) {
	list, err := u.Models(ctx)
	report := link.UpstreamReport{Name: u.Name, Reachable: true}
	switch {
	case err == nil:
		slices.Sort(list.IDs)
		report.Models, report.Open = slices.Compact(list.IDs), list.Open
	case errors.As(err, new(*StatusError)), errors.Is(err, ErrNoList):
		err = nil // it answers
	default:
		report.Reachable = false
	}
	defer p.Look()
	h := &u.health
	h.mu.Lock()
	h.asking = false
	pause := p.Interval
	switch {
	case ctx.Err() != nil:
		h.mu.Unlock()
		return
	case err != nil:
		pause = min(firstHealthPause<<min(h.failures, 10), lastHealthPause)
		h.failures++
	default:
		h.failures = 0
	}
	h.next = time.Now().Add(time.Duration((0.9 + 0.2*mathrand.Float64()) * float64(pause)))
	h.mu.Unlock()
	if errors.Is(err, ErrNoAnswer) && !errors.Is(err, ErrNotConnected) {
		return // it may be busy
	}
	p.note(u, report, err)
}

// note records a report on an upstream, and notifies if it is new.
func (p *Prober) note(u *Server, report link.UpstreamReport, err error) {
	h := &u.health
	h.mu.Lock()
	turned := !h.known && !report.Reachable || h.known && h.report.Reachable != report.Reachable
	same := h.known && !turned && h.report.Open == report.Open &&
		(h.report.Models == nil) == (report.Models == nil) && slices.Equal(h.report.Models, report.Models)
	h.known, h.report = true, report
	h.reachable.Store(report.Reachable)
	h.mu.Unlock()
	switch {
	case same:
		return
	case turned && report.Reachable:
		p.logger.Info("model server is reachable", "upstream", u.Name, "address", u.Address)
	case turned:
		p.logger.Warn("model server cannot be reached", "upstream", u.Name, "address", u.Address, "error", err)
	}
	p.notify()
}

// answered takes the status of an answer to a request. It costs next to nothing
// while the upstream is known to be reachable.
func (p *Prober) answered(u *Server, status int) {
	if status == http.StatusNotFound {
		p.doubt(u, missingRest) // the model may be gone
	}
	if u.health.reachable.Load() {
		return
	}
	report, _ := u.health.last()
	report.Name, report.Reachable = u.Name, true
	p.note(u, report, nil)
	p.doubt(u, 0) // its models are not known
}

// failed takes the code with which a request ended that has no answer.
func (p *Prober) failed(u *Server, code link.Code) {
	switch code {
	case link.CodeUpstreamDown:
		if _, known := u.health.last(); !known || u.health.reachable.Load() {
			p.note(u, link.UpstreamReport{Name: u.Name}, ErrNotConnected)
			p.doubt(u, brokenRest)
		}
	case link.CodeUpstreamReset:
		p.doubt(u, brokenRest)
	}
}

// doubt has an upstream asked soon, but not before it has rested.
func (p *Prober) doubt(u *Server, rest time.Duration) {
	h := &u.health
	h.mu.Lock()
	at := h.asked.Add(rest)
	sooner := !h.asking && at.Before(h.next)
	if sooner {
		h.next = at
	}
	h.mu.Unlock()
	if sooner {
		p.Look()
	}
}

// last returns the last report on an upstream, if there was one. Without an answer it
// has no models.
func (h *health) last() (report link.UpstreamReport, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.report, h.known
}

// State describes the upstream in a word, and returns the models that it lists.
func (u *Server) State() (state string, models []string) {
	report, known := u.health.last()
	switch {
	case !known:
		return StateUnknown, nil
	case !report.Reachable:
		return StateDown, nil
	default:
		return StateReachable, report.Models
	}
}
