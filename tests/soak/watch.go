package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// A bound is how much a figure may differ: by the floor, whatever its size, or by
// the share of itself.
type bound struct{ floor, share float64 }

func (b bound) of(v float64) float64 { return max(b.floor, b.share*v) }

// A figure must not grow.
type figure struct {
	name   string
	steady bound // from one quarter of the steady part to another
	atRest bound // from rest after the first requests to rest after the last
	// perWebSocket is what a tunnel by WebSocket has more than one by QUIC: a
	// connector that has lost UDP uses it for a while.
	perWebSocket float64
}

var never = bound{floor: math.Inf(1)}

// figures are those of all gateways, and then of the connectors in hosts. What a
// process has of memory depends on when it collects its garbage; what it needs of
// that is compared at rest. Before, it has what is made once. After, there is also
// what it keeps by design: 2 MiB of changes of its file, responses for half an hour,
// the last requests, metrics of errors. That was 11 MB of three gateways after twelve
// minutes, and 4 MB of one after five with 500 connectors.
var figures = func() (all []figure) {
	for _, of := range []string{"gateway, ", "connectors in hosts, "} {
		all = append(all,
			figure{of + "RSS in MB", bound{20, 0.15}, never, 0},
			figure{of + "goroutines", bound{100, 0.08}, bound{100, 0.05}, 8},
			figure{of + "open files", bound{40, 0.08}, bound{40, 0.05}, 2},
			figure{of + "live heap at rest in MB", never, bound{16, 0.1}, 0})
	}
	return all
}()

// A sample is what everything occupied at a time.
type sample struct {
	at        time.Time
	figures   [8]float64 // in the order of figures
	online    int
	webSocket int // of those online
}

// sampleLimit is how long a process may take to count its goroutines: one that is
// stopped does not answer.
const sampleLimit = 3 * time.Second

// sample takes one; at rest it collects garbage before. While the gateway is being
// replaced there is an error.
func (s *system) sample(ctx context.Context, atRest bool) (m sample, err error) {
	m.at = time.Now()
	list, err := s.edges[0].Connectors(ctx)
	if err != nil {
		return m, err
	}
	for _, c := range list {
		if c.State == "online" {
			m.online++
		}
		if c.Transport == "websocket" {
			m.webSocket++
		}
	}
	for _, e := range s.edges {
		if err := m.add(ctx, 0, &host{e.Process, e.Admin}, atRest); err != nil {
			return m, err
		}
	}
	for _, h := range s.hosts {
		if err := m.add(ctx, 4, h, atRest); err != nil {
			return m, err
		}
	}
	return m, nil
}

// add adds what a process occupies to the figures from the i-th on.
func (m *sample) add(ctx context.Context, i int, h *host, atRest bool) error {
	if atRest {
		heap, err := h.admin.Heap(ctx, true)
		if err != nil {
			return err
		}
		m.figures[i+3] += float64(heap.Live) / (1 << 20)
	}
	rss, err := h.process.Kilobytes("status", "VmRSS:")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sampleLimit)
	defer cancel()
	goroutines, err := h.admin.Goroutines(ctx)
	if err != nil {
		return err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.process.Pid()))
	m.figures[i] += float64(rss) / 1024
	m.figures[i+1] += float64(goroutines)
	m.figures[i+2] += float64(len(files))
	return err
}

// String is the sample in one line.
func (m sample) String() string {
	var b strings.Builder
	for i, f := range figures {
		if m.figures[i] > 0 { // heaps at rest only
			fmt.Fprintf(&b, "%s %.0f · ", f.name, m.figures[i])
		}
	}
	fmt.Fprintf(&b, "%d online, %d by WebSocket", m.online, m.webSocket)
	return b.String()
}

// watch takes samples and prints what happens, until ctx ends.
func (s *system) watch(ctx context.Context, r *report) {
	printed, every := time.Now(), min(15*time.Second, max(time.Second, s.o.Length/60))
	for command.Pause(ctx, every) == nil {
		s.visitAll(ctx)
		m, err := s.sample(ctx, false)
		if err == nil {
			r.samples = append(r.samples, m)
		}
		if time.Since(printed) < min(30*time.Second, s.o.Length/4) || ctx.Err() != nil {
			continue
		}
		printed = time.Now()
		command.Progress("%s", s.tally.line())
		if err != nil {
			command.Progress("  no sample: %v", err)
		} else {
			command.Progress("  %s", m)
		}
	}
}

// atRest takes a sample of processes that have nothing to do. A profile of each
// gateway's heap stays with the logs.
func (s *system) atRest(ctx context.Context, name string) (m sample, err error) {
	// What ends a moment after the last request: idle connections, timers.
	if err := command.Pause(ctx, min(10*time.Second, s.o.Length/12)); err != nil {
		return m, err
	}
	err = rig.Poll(ctx, rig.StartLimit, poll, "a sample at rest", func(ctx context.Context) (err error) {
		if m, err = s.sample(ctx, true); err != nil {
			return err
		}
		for i, e := range s.edges {
			err = errors.Join(err, e.Admin.Save(ctx, "heap", filepath.Join(s.rig.Dir, fmt.Sprintf("heap-%s-%d.pprof", name, i))))
		}
		return err
	})
	command.Progress("at rest: %s", m)
	return m, errors.Join(err, ctx.Err())
}

// A sighting is where a request was seen.
type sighting struct {
	server int
	deaths int32 // of that model server by then
}

// visit asks a model server what it has seen, and returns how many requests it
// is answering. A request that reached a model twice is a finding, whichever
// answered it: what may have reached one must not be sent again, unless that
// one has been killed since.
func (s *system) visit(ctx context.Context, server int) (running int, err error) {
	body, err := rig.Admin(s.addresses[server]).Call(ctx, http.MethodGet, play.ReportPath, nil)
	if err != nil {
		return 0, err
	}
	var r play.Report
	if err := json.Unmarshal(body, &r); err != nil {
		return 0, fmt.Errorf("reading the report of a model server: %w", err)
	}
	s.seenMu.Lock()
	defer s.seenMu.Unlock()
	for _, id := range r.Seen {
		if first, again := s.seen[id]; again && first.deaths == s.deaths[first.server].Load() {
			s.tally.find("request %d has reached a model twice: model server %d, and model server %d", id, first.server, server)
		}
		s.seen[id] = sighting{server, s.deaths[server].Load()}
	}
	return r.Running, nil
}

// visitAll visits all model servers; one that is down answers nothing.
func (s *system) visitAll(ctx context.Context) (running int) {
	for i := range s.servers {
		n, _ := s.visit(ctx, i)
		running += n
	}
	return running
}

// restLimit is how long everything may take to come to rest when no more
// requests are sent: what a silent peer holds is let go after a minute.
const restLimit = 2 * time.Minute

// rest waits until nothing runs anywhere and all connectors are online. That
// it does not come to that is a finding.
func (s *system) rest(ctx context.Context, _ *report) error {
	err := rig.Poll(ctx, restLimit, poll, "rest", func(ctx context.Context) error {
		atModels := s.visitAll(ctx)
		inGateway, err := s.inflight(ctx)
		if err == nil && atModels+inGateway > 0 {
			err = fmt.Errorf("models answer %d requests, the gateway has %d, and no client waits", atModels, inGateway)
		}
		return errors.Join(err, s.recovered(ctx, nil))
	})
	if err != nil && ctx.Err() == nil {
		s.tally.find("not at rest after the last request: %v", err)
	}
	return context.Cause(ctx)
}

var inflightPattern = regexp.MustCompile(`(?m)^postern_inflight_requests\{[^}]*\} (\d+)`)

// inflight sums the running requests that the gateways report.
func (s *system) inflight(ctx context.Context) (sum int, err error) {
	for _, e := range s.edges {
		page, err := e.Admin.Metrics(ctx)
		if err != nil {
			return 0, err
		}
		for _, m := range inflightPattern.FindAllStringSubmatch(page, -1) {
			n, _ := strconv.Atoi(m[1]) // digits
			sum += n
		}
	}
	return sum, nil
}
