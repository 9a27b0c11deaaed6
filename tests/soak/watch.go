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

// A bound is the maximum difference of a figure: the floor, or a share of its value if that is more.
type bound struct{ floor, share float64 }

func (b bound) limit(v float64) float64 { return max(b.floor, b.share*v) }

// A figure is a measured quantity that must not grow.
type figure struct {
	name   string
	steady bound // between quarters of the steady part
	atRest bound // between rest after the first requests and rest after the last one
	// perWebSocket is the amount that a tunnel over WebSocket needs in addition to one over QUIC. A connector
	// that has lost UDP uses the WebSocket for a while.
	perWebSocket float64
}

var never = bound{floor: math.Inf(1)}

// figures are measured for the gateways together, and for the hosts together. RSS depends on the time of the
// last garbage collection, so live heaps are compared at rest. The heap at the end has in addition what a
// gateway keeps by design: 2 MiB of changes of its file, responses for half an hour, the last requests, and
// metrics of errors. That was 11 MB for three gateways after twelve minutes, and 4 MB for one gateway after
// five minutes with 500 connectors.
var figures = func() (all []figure) {
	for _, prefix := range []string{"gateway, ", "connectors in hosts, "} {
		all = append(all,
			figure{prefix + "RSS in MB", bound{20, 0.15}, never, 0},
			figure{prefix + "goroutines", bound{100, 0.08}, bound{100, 0.05}, 8},
			figure{prefix + "open files", bound{40, 0.08}, bound{40, 0.05}, 2},
			figure{prefix + "live heap at rest in MB", never, bound{16, 0.1}, 0})
	}
	return all
}()

// A sample has all figures at one time.
type sample struct {
	taken     time.Time
	figures   [8]float64 // in the order of figures
	online    int
	webSocket int // number of online connectors that use the WebSocket
}

// sampleLimit is the maximum time to count the goroutines of a process. A stopped process does not answer.
const sampleLimit = 3 * time.Second

// sample takes a sample, at rest after a garbage collection. It returns an error while the gateway is being
// replaced.
func (s *system) sample(ctx context.Context, atRest bool) (m sample, err error) {
	m.taken = time.Now()
	list, err := s.gateway.Connectors(ctx)
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
	if err := m.add(ctx, 0, &host{s.gateway.Process, s.gateway.Admin}, atRest); err != nil {
		return m, err
	}
	for _, h := range s.hosts {
		if err := m.add(ctx, 4, h, atRest); err != nil {
			return m, err
		}
	}
	return m, nil
}

// add adds the values of a process to the figures from index i on.
func (m *sample) add(ctx context.Context, i int, h *host, atRest bool) error {
	if atRest {
		heap, err := h.admin.Heap(ctx)
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

// String returns the sample in one line.
func (m sample) String() string {
	var b strings.Builder
	for i, f := range figures {
		if m.figures[i] > 0 { // heaps are measured at rest only
			fmt.Fprintf(&b, "%s %.0f · ", f.name, m.figures[i])
		}
	}
	fmt.Fprintf(&b, "%d online, %d by WebSocket", m.online, m.webSocket)
	return b.String()
}

// watch takes samples and prints the progress until ctx ends.
func (s *system) watch(ctx context.Context, r *report) {
	printed, every := time.Now(), min(15*time.Second, max(time.Second, s.o.Length/60))
	for command.Pause(ctx, every) == nil {
		s.readReports(ctx)
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

// atRest takes a sample of idle processes. It keeps a heap profile of the gateway with the logs.
func (s *system) atRest(ctx context.Context, name string) (m sample, err error) {
	// Idle connections and timers end a moment after the last request.
	if err := command.Pause(ctx, min(10*time.Second, s.o.Length/12)); err != nil {
		return m, err
	}
	err = rig.Poll(ctx, rig.StartLimit, poll, "a sample at rest", func(ctx context.Context) (err error) {
		if m, err = s.sample(ctx, true); err != nil {
			return err
		}
		return s.gateway.Admin.Save(ctx, "heap", filepath.Join(s.rig.Dir, "heap-"+name+".pprof"))
	})
	command.Progress("at rest: %s", m)
	return m, errors.Join(err, ctx.Err())
}

// A sighting is the model server that a request has reached.
type sighting struct {
	server int
	deaths int32 // deaths of that model server so far
}

// readReport reads the requests that a model server has received, and returns the number of running ones. A request
// that has reached model servers twice is a finding, unless the first one has been killed since: the gateway
// may not send a request again if it may have reached a model.
func (s *system) readReport(ctx context.Context, server int) (running int, err error) {
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

// readReports reads the reports of all model servers. A server that is down counts as idle.
func (s *system) readReports(ctx context.Context) (running int) {
	for i := range s.servers {
		n, _ := s.readReport(ctx, i)
		running += n
	}
	return running
}

// restLimit is the maximum time until everything is idle after the last request. The resources of a silent
// peer are released after a minute.
const restLimit = 2 * time.Minute

// rest waits until no request is running and all connectors are online. If that does not happen, it is a
// finding.
func (s *system) rest(ctx context.Context, _ *report) error {
	err := rig.Poll(ctx, restLimit, poll, "rest", func(ctx context.Context) error {
		atModels := s.readReports(ctx)
		inGateway, err := s.inflight(ctx)
		if err == nil && atModels+inGateway > 0 {
			err = fmt.Errorf("model servers have %d requests and the gateway %d, but no client is waiting", atModels, inGateway)
		}
		return errors.Join(err, s.recovered(ctx, nil))
	})
	if err != nil && ctx.Err() == nil {
		s.tally.find("not idle after the last request: %v", err)
	}
	return context.Cause(ctx)
}

var inflightPattern = regexp.MustCompile(`(?m)^postern_inflight_requests\{[^}]*\} (\d+)`)

// inflight returns the number of running requests that the gateway reports.
func (s *system) inflight(ctx context.Context) (sum int, err error) {
	page, err := s.gateway.Admin.Metrics(ctx)
	for _, m := range inflightPattern.FindAllStringSubmatch(page, -1) {
		n, _ := strconv.Atoi(m[1]) // digits
		sum += n
	}
	return sum, err
}
