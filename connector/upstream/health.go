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
	"github.com/postern-dev/postern/connector/panics"
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

// health is the state of one model server.
type health struct {
	report atomic.Pointer[link.UpstreamReport] // the last one, never modified; nil: unknown
	doubts chan time.Duration                  // of capacity 1: see doubt
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

// Look makes Run look for new upstreams.
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

// Run checks the upstreams until ctx ends. upstreams returns the current ones.
func (p *Prober) Run(ctx context.Context, upstreams func() Set) {
	var watchers sync.WaitGroup
	defer watchers.Wait()
	watched := make(map[*Server]context.CancelFunc)
	var last Set
	for ctx.Err() == nil {
		current := upstreams()
		if !maps.Equal(current, last) {
			last = current
			p.notify()
		}
		for u, stop := range watched {
			if current[u.Name] != u {
				stop()
				delete(watched, u)
			}
		}
		for _, u := range current {
			if watched[u] == nil {
				watching, stop := context.WithCancel(ctx)
				watched[u] = stop
				watchers.Go(func() { p.watch(watching, u) })
			}
		}
		select {
		case <-ctx.Done():
		case <-p.wake:
		}
	}
	for _, stop := range watched {
		stop()
	}
}

// watch checks one upstream until ctx ends: after pauses, or earlier after a doubt.
func (p *Prober) watch(ctx context.Context, u *Server) {
	for failures := 0; ctx.Err() == nil; {
		asked, pause := time.Now(), p.Interval
		err := panics.Do(p.logger, "asking a model server for its models", func() error { return p.ask(ctx, u) })
		if err == nil {
			failures = 0
		} else {
			pause = min(firstHealthPause<<min(failures, 10), lastHealthPause)
			failures++
		}
		select {
		case <-u.health.doubts: // answered by this check
		default:
		}
		next := time.Now().Add(time.Duration((0.9 + 0.2*mathrand.Float64()) * float64(pause)))
		for ctx.Err() == nil && time.Now().Before(next) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(next)):
			case rest := <-u.health.doubts:
				if sooner := asked.Add(rest); sooner.Before(next) {
					next = sooner
				}
			}
		}
	}
}

// ask asks one upstream for its models, and records the result. An error means that the
// server is unreachable or slow.
func (p *Prober) ask(ctx context.Context, u *Server) error {
	list, err := u.Models(ctx)
	report := link.UpstreamReport{Name: u.Name, Reachable: true}
	switch {
	case err == nil:
		slices.Sort(list.IDs)
		report.Models, report.Open = slices.Compact(list.IDs), list.Open
	case errors.As(err, new(*StatusError)), errors.Is(err, ErrNoList):
		err = nil // the server is up
	case ctx.Err() != nil, errors.Is(err, ErrNoAnswer) && !errors.Is(err, ErrNotConnected):
		return err // it may be busy
	default:
		report.Reachable = false
	}
	p.note(u, report, err)
	return err
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
	select {
	case u.health.doubts <- rest:
	default: // a check is already due soon
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
