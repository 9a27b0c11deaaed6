package upstream

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// healthInterval is the interval of health checks without signs of a change.
	healthInterval = time.Minute
	// The pauses after failed checks double from firstHealthPause to lastHealthPause.
	firstHealthPause = time.Second
	lastHealthPause  = 30 * time.Second
	// missingRest and brokenRest are the shortest times between two checks, after an
	// answer that may mean a missing model, and after a broken connection.
	missingRest = 10 * time.Second
	brokenRest  = 2 * time.Second
)

// The states of an upstream.
const (
	StateReachable = "reachable"
	StateDown      = "down"
	StateUnknown   = "unknown" // not checked yet, or slow to answer
)

// health is the state of one model server. The zero value is ready.
type health struct {
	report atomic.Pointer[link.UpstreamReport] // the last one, never modified; nil: unknown

	mu       sync.Mutex
	failures int       // in a row
	asked    time.Time // last check
	next     time.Time // next check; zero: now
	asking   bool
}

// Prober checks the health of an agent's upstreams.
type Prober struct {
	logger   *slog.Logger
	Interval time.Duration // between two checks without signs of a change
	wake     chan struct{} // of capacity 1: see Look

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
}

// NewProber returns a prober that is ready to run.
func NewProber(logger *slog.Logger) *Prober {
	return &Prober{logger: logger, Interval: healthInterval, wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Look makes Run check the upstreams that are due.
func (p *Prober) Look() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Changed returns a channel that is closed at the next change.
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

// Run periodically asks upstreams for their models, until ctx ends. upstreams returns the
// current upstreams.
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

// due reports whether the upstream is due for a check, which the caller must then run.
// Otherwise it returns the time until the next check.
func (h *health) due(now time.Time) (pause time.Duration, due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asking {
		return healthInterval, false // the running check wakes Run
	}
	if pause = h.next.Sub(now); pause > 0 {
		return pause, false
	}
	h.asking, h.asked = true, now
	return healthInterval, true
}

// ask asks one upstream for its models, and records the result.
func (p *Prober) ask(ctx context.Context, u *Server) {
	list, err := u.Models(ctx)
	report := link.UpstreamReport{Name: u.Name, Reachable: true}
	switch {
	case err == nil:
		slices.Sort(list.IDs)
		report.Models, report.Open = slices.Compact(list.IDs), list.Open
	case errors.As(err, new(*StatusError)), errors.Is(err, ErrNoList):
		err = nil // the server is up
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

// note records a report on an upstream, and notifies if it has changed.
func (p *Prober) note(u *Server, report link.UpstreamReport, err error) {
	last := u.health.report.Swap(&report)
	wasDown := last != nil && !last.Reachable
	switch {
	case last != nil && reflect.DeepEqual(*last, report):
		return
	case report.Reachable && wasDown:
		p.logger.Info("model server is reachable", "upstream", u.Name, "address", u.Address)
	case !report.Reachable && !wasDown:
		p.logger.Warn("model server is unreachable", "upstream", u.Name, "address", u.Address, "error", err)
	}
	p.notify()
}

// answered processes the status of an answer to a request. It is cheap while the upstream
// is reachable.
func (p *Prober) answered(u *Server, status int) {
	if status == http.StatusNotFound {
		p.doubt(u, missingRest) // the model may be gone
	}
	last := u.health.report.Load()
	if last != nil && last.Reachable {
		return
	}
	report := link.UpstreamReport{Name: u.Name, Reachable: true}
	if last != nil {
		report.Models, report.Open = last.Models, last.Open
	}
	p.note(u, report, nil)
	p.doubt(u, 0) // its models are unknown
}

// failed processes the code of a failed request.
func (p *Prober) failed(u *Server, code link.Code) {
	switch code {
	case link.CodeUpstreamDown:
		if last := u.health.report.Load(); last == nil || last.Reachable {
			p.note(u, link.UpstreamReport{Name: u.Name}, ErrNotConnected)
			p.doubt(u, brokenRest)
		}
	case link.CodeUpstreamReset:
		p.doubt(u, brokenRest)
	}
}

// doubt schedules a check of an upstream, at least rest after the last one.
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

// State returns the state of the upstream, and the models that it lists.
func (u *Server) State() (state string, models []string) {
	report := u.health.report.Load()
	switch {
	case report == nil:
		return StateUnknown, nil
	case !report.Reachable:
		return StateDown, nil
	default:
		return StateReachable, report.Models
	}
}
