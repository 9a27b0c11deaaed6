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
	"github.com/postern-dev/postern/connector/wait"
)

const (
	// healthInterval is the interval of health checks without signs of a change.
	healthInterval = time.Minute
	// The pauses after failed checks double from firstHealthPause to lastHealthPause.
	firstHealthPause = time.Second
	lastHealthPause  = 30 * time.Second
	// missingInterval, brokenInterval and recheckInterval are the shortest intervals of checks: after
	// answers that may mean another list of models, after broken connections, and for the gateway.
	missingInterval = 10 * time.Second
	brokenInterval  = 2 * time.Second
	recheckInterval = time.Second
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
	Interval time.Duration // of checks without signs of a change
	wake     chan struct{} // of capacity 1: see UpstreamsChanged
	changed  wait.Change
}

// NewProber returns a prober that is ready to run.
func NewProber(logger *slog.Logger) *Prober {
	return &Prober{logger: logger, Interval: healthInterval, wake: make(chan struct{}, 1)}
}

// UpstreamsChanged makes Run read the upstreams again.
func (p *Prober) UpstreamsChanged() { wait.Wake(p.wake, struct{}{}) }

// Changed returns a channel that is closed at the next change of the upstreams or their states.
func (p *Prober) Changed() <-chan struct{} { return p.changed.Next() }

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
			p.changed.Now()
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

// watch checks one upstream until ctx ends: periodically, and sooner after a doubt.
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
		case <-u.health.doubts: // this check was enough
		default:
		}
		next := time.Now().Add(time.Duration((0.9 + 0.2*mathrand.Float64()) * float64(pause)))
		for ctx.Err() == nil && time.Now().Before(next) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(next)):
			case interval := <-u.health.doubts:
				if sooner := asked.Add(interval); sooner.Before(next) {
					next = sooner
				}
			}
		}
	}
}

// ask requests the list of one upstream's models, and records the result. An error means that the
// server is unreachable or slow.
func (p *Prober) ask(ctx context.Context, u *Server) error {
	list, err := u.Models(ctx)
	report := link.UpstreamReport{Name: u.Name, Reachable: true}
	switch {
	case err == nil:
		if last := u.health.report.Load(); last != nil {
			list.Keep(last.Windows)
		}
		report.Models, report.Open, report.Windows = append(list.IDs, list.Aliases...), list.Open, list.Windows
		report.Status, report.Strict = list.Status, list.Strict
		slices.Sort(report.Models)
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

// note records a report on an upstream, and announces a change.
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
	p.changed.Now()
}

// answered processes the status of an answer to a request. It is cheap while the upstream
// is reachable.
func (p *Prober) answered(u *Server, status int) {
	last := u.health.report.Load()
	// The model may be gone, or may have been loaded, which shows its window.
	if status == http.StatusNotFound || status == http.StatusOK && last != nil && len(last.Status) > 0 {
		p.doubt(u, missingInterval)
	}
	if last != nil && last.Reachable {
		return
	}
	report := link.UpstreamReport{Name: u.Name, Reachable: true}
	if last != nil {
		report.Models, report.Open, report.Windows = last.Models, last.Open, last.Windows
		report.Strict = last.Strict
	}
	p.note(u, report, nil)
	p.doubt(u, 0) // its models are unknown
}

// failed processes the failure of a request.
func (p *Prober) failed(u *Server, failed *link.Failure) {
	switch failed {
	case link.ErrUpstreamDown:
		if last := u.health.report.Load(); last == nil || last.Reachable {
			p.note(u, link.UpstreamReport{Name: u.Name}, ErrNotConnected)
			p.doubt(u, brokenInterval)
		}
	case link.ErrUpstreamReset:
		p.doubt(u, brokenInterval)
	}
}

// Recheck asks an upstream for its models again soon.
func (p *Prober) Recheck(u *Server) { p.doubt(u, recheckInterval) }

// doubt schedules a check of an upstream, at least interval after the last one. It has no
// effect if another doubt waits.
func (p *Prober) doubt(u *Server, interval time.Duration) { wait.Wake(u.health.doubts, interval) }

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
