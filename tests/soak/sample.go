package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
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
	list, err := s.gateway.Admin.Connectors(ctx)
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
	if result.parts[partGateway], err = useOf(ctx, s.gateway.Process, s.gateway.Admin); err != nil {
		return result, err
	}
	for _, h := range s.hosts {
		u, err := useOf(ctx, h.process, h.admin)
		if err != nil {
			return result, err
		}
		result.parts[partHosts].add(u)
	}
	for _, c := range s.connectors[:s.o.Real] {
		// One that is being replaced occupies nothing.
		if u, err := useOf(ctx, c.Process, ""); err == nil {
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
func useOf(ctx context.Context, p *rig.Process, a rig.Admin) (u use, err error) {
	if u.rss, err = p.Kilobytes("status", "VmRSS:"); err != nil {
		return use{}, err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid()))
	if err != nil {
		return use{}, fmt.Errorf("counting the files of a process: %w", err)
	}
	u.files = len(files)
	if a != "" {
		ctx, cancel := context.WithTimeout(ctx, sampleLimit)
		defer cancel()
		u.goroutines, err = a.Goroutines(ctx)
	}
	return u, err
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
	err = rig.Poll(ctx, rig.StartLimit, poll, "a sample at rest", func(ctx context.Context) error {
		if heaps, err = s.heaps(ctx); err != nil {
			return err
		}
		if err := s.gateway.Admin.Save(ctx, "heap", filepath.Join(s.rig.Dir, "heap-"+name+".pprof")); err != nil {
			return err
		}
		m, err = s.sample(ctx)
		return err
	})
	return m, heaps, errors.Join(err, ctx.Err())
}

// heaps returns what the heaps hold after a collection.
func (s *system) heaps(ctx context.Context) (heaps [parts]int, err error) {
	add := func(part int, a rig.Admin) error {
		heap, err := a.Heap(ctx, true)
		heaps[part] += int(heap.Live)
		return err
	}
	err = add(partGateway, s.gateway.Admin)
	for i := 0; i < len(s.hosts) && err == nil; i++ {
		err = add(partHosts, s.hosts[i].admin)
	}
	return heaps, err
}
