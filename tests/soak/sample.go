package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/tests/command"
)

// The parts that are watched.
const (
	partGateway = iota
	partHosts
	partOwn
	parts
)

var partNames = [parts]string{"gateway", "connectors in hosts", "connector processes"}

// use is what processes occupy.
type use struct {
	rss        int // KB
	goroutines int // -1: not known
	files      int // open descriptors
}

// A sample is what everything occupied at a time.
type sample struct {
	at        time.Time
	parts     [parts]use
	online    int
	webSocket int // of those online
}

// sample takes one. While the gateway is being replaced there is an error.
func (s *system) sample(ctx context.Context) (sample, error) {
	result := sample{at: time.Now()}
	list, err := s.admin.connectors(ctx)
	if err != nil {
		return result, err
	}
	for _, c := range list {
		if c.State == "online" {
			result.online++
		}
		if c.Transport == "websocket" {
			result.webSocket++
		}
	}
	if result.parts[partGateway], err = useOf(ctx, s.gateway.pid(), s.admin); err != nil {
		return result, err
	}
	for _, h := range s.hosts {
		u, err := useOf(ctx, h.process.pid(), h.admin)
		if err != nil {
			return result, err
		}
		result.parts[partHosts].add(u)
	}
	for _, c := range s.connectors[:s.o.Real] {
		// One that is being replaced occupies nothing.
		if u, err := useOf(ctx, c.process.pid(), ""); err == nil {
			result.parts[partOwn].add(u)
		}
	}
	result.parts[partOwn].goroutines = -1
	return result, nil
}

func (u *use) add(other use) {
	u.rss += other.rss
	u.goroutines += other.goroutines
	u.files += other.files
}

// sampleLimit is how long a process may take to tell its goroutines: one that
// is stopped tells nothing.
const sampleLimit = 3 * time.Second

// useOf reads what a process occupies; its goroutines if it has an admin
// endpoint.
func useOf(ctx context.Context, pid int, a admin) (u use, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return use{}, fmt.Errorf("reading the memory of a process: %w", err)
	}
	if u.rss, err = kilobytes(string(status), "VmRSS:"); err != nil {
		return use{}, err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return use{}, fmt.Errorf("counting the files of a process: %w", err)
	}
	u.files = len(files)
	if a != "" {
		ctx, cancel := context.WithTimeout(ctx, sampleLimit)
		defer cancel()
		u.goroutines, err = a.goroutines(ctx)
	}
	return u, err
}

// kilobytes returns the number of the line that begins with the label, as in
// "VmRSS:    1234 kB".
func kilobytes(text, label string) (int, error) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == label && fields[2] == "kB" {
			return strconv.Atoi(fields[1])
		}
	}
	return 0, fmt.Errorf("there is no line %q", label)
}

// String is the sample in one line.
func (m sample) String() string {
	var b strings.Builder
	for i, u := range m.parts {
		fmt.Fprintf(&b, "%s %d MB", partNames[i], u.rss/1024)
		if u.goroutines >= 0 {
			fmt.Fprintf(&b, " %d goroutines", u.goroutines)
		}
		fmt.Fprintf(&b, " %d files · ", u.files)
	}
	fmt.Fprintf(&b, "%d online, %d by WebSocket", m.online, m.webSocket)
	return b.String()
}

// watch takes samples and prints what happens, until ctx ends.
func (s *system) watch(ctx context.Context, h *history) {
	printed := time.Now()
	for command.Pause(ctx, s.o.sampling()) == nil {
		s.visitAll(ctx)
		m, err := s.sample(ctx)
		if err == nil {
			h.samples = append(h.samples, m)
		}
		if time.Since(printed) < s.o.printing() || ctx.Err() != nil {
			continue
		}
		printed = time.Now()
		command.Progress("%s", s.tally.line())
		if err == nil {
			command.Progress("  %s", m)
		} else {
			command.Progress("  no sample: %v", err)
		}
	}
}

// atRest takes a sample of processes that have nothing to do, after a garbage
// collection, and what their heaps hold. A profile of the gateway's stays with
// the logs.
func (s *system) atRest(ctx context.Context, name string) (m sample, heaps [parts]int, err error) {
	// What ends a moment after the last request: idle connections, timers.
	if err := command.Pause(ctx, min(10*time.Second, s.o.Length/12)); err != nil {
		return m, heaps, err
	}
	err = command.Until(ctx, startLimit, poll, "a sample at rest", func() error {
		if heaps, err = s.heaps(ctx); err != nil {
			return err
		}
		profile, err := s.admin.call(ctx, http.MethodGet, "/debug/pprof/heap", "", nil)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(s.dir, "heap-"+name+".pprof"), profile, 0o600); err != nil {
			return fmt.Errorf("saving a profile: %w", err)
		}
		m, err = s.sample(ctx)
		return err
	})
	return m, heaps, errors.Join(err, ctx.Err())
}

// heaps returns what the heaps hold after a collection.
func (s *system) heaps(ctx context.Context) (heaps [parts]int, err error) {
	if heaps[partGateway], err = s.admin.heap(ctx); err != nil {
		return heaps, err
	}
	for _, h := range s.hosts {
		n, err := h.admin.heap(ctx)
		if err != nil {
			return heaps, err
		}
		heaps[partHosts] += n
	}
	return heaps, nil
}
