package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tests/rig"
)

// allocations are what one process allocates for one request.
type allocations struct{ Objects, Bytes float64 }

// accountClients is how many clients send requests while allocations are
// counted and profiles taken.
const accountClients = 16

// profileSeconds is how long a CPU profile takes.
const profileSeconds = 5

// A watched process has profiling pages.
type watched struct {
	name  string
	admin rig.Admin
}

// measureAllocations counts what each Caddy and the connector allocate per
// request. Postern's connector is replaced by one with profiling pages: this
// comes last.
func (b *builder) measureAllocations(ctx context.Context, o options, s *system) (map[string]allocations, error) {
	processes := []watched{{s.Processes[1].name, s.gateway.Admin}}
	if s.connector != nil {
		address, err := b.replaceConnector(ctx, s)
		if err != nil {
			return nil, err
		}
		processes = append(processes, watched{nameConnector, address})
	}
	if err := s.sendRequests(ctx, o.Counted/4+1); err != nil { // fills pools
		return nil, err
	}
	result := map[string]allocations{}
	for _, p := range processes {
		a, err := s.countAllocations(ctx, p.admin, o.Counted)
		if err != nil {
			return nil, err
		}
		result[p.name] = a
	}
	if o.Profile == "" {
		return result, nil
	}
	o.Profile = filepath.Join(o.Profile, s.Name)
	return result, s.saveProfiles(ctx, o, processes)
}

// replaceConnector starts the same agent in a process of this program.
func (b *builder) replaceConnector(ctx context.Context, s *system) (rig.Admin, error) {
	stop(s.connector.Process)
	if err := s.waitOnline(ctx, 0); err != nil {
		return "", err
	}
	config, err := os.Open(s.connector.Config)
	if err != nil {
		return "", fmt.Errorf("reading the connector's configuration: %w", err)
	}
	defer config.Close()
	p, address, err := startRole(b.rig, nameConnector, roleConnector, config)
	if err != nil {
		return "", err
	}
	s.connector.Process = p
	s.Processes[len(s.Processes)-1].Process = p
	return rig.Admin(address), s.waitOnline(ctx, 1)
}

// countAllocations sends requests and returns what each of them allocated in a
// process. What reading the account itself allocates is measured and taken off.
func (s *system) countAllocations(ctx context.Context, a rig.Admin, requests int) (allocations, error) {
	var readings [3]rig.Heap
	for i := range readings {
		if i == 2 {
			if err := s.sendRequests(ctx, requests); err != nil {
				return allocations{}, err
			}
		}
		var err error
		if readings[i], err = a.Heap(ctx, false); err != nil {
			return allocations{}, err
		}
	}
	reading := rig.Heap{Mallocs: readings[1].Mallocs - readings[0].Mallocs, Bytes: readings[1].Bytes - readings[0].Bytes}
	n := float64(requests)
	return allocations{
		Objects: float64(readings[2].Mallocs-readings[1].Mallocs-reading.Mallocs) / n,
		Bytes:   float64(readings[2].Bytes-readings[1].Bytes-reading.Bytes) / n,
	}, nil
}

// sendRequests sends a number of requests.
func (s *system) sendRequests(ctx context.Context, n int) error {
	clients, err := s.dialAll(accountClients, time.Minute)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	what := smallTask()
	request := s.Target.request(what.request)
	var sent atomic.Int64
	return parallel(clients, func(_ int, c *client) error {
		for sent.Add(1) <= int64(n) && ctx.Err() == nil {
			if err := oneRequest(c, request, what.want); err != nil {
				return err
			}
		}
		return context.Cause(ctx)
	})
}

// saveProfiles takes profiles of all processes at a time: CPU under requests,
// CPU under streams, and what they have allocated since they started.
func (s *system) saveProfiles(ctx context.Context, o options, processes []watched) error {
	clients, err := s.dialAll(accountClients, time.Minute)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	const longer = (profileSeconds + 1) * time.Second
	requests := func() error {
		_, err := s.closedLoop(ctx, clients, longer, smallTask())
		return err
	}
	if err := profileUnder(ctx, requests, o.Profile, "requests", processes); err != nil {
		return err
	}
	streams := func() error {
		o.Stream = longer
		_, err := s.measureStreams(ctx, o, aimStreams)
		return err
	}
	if err := profileUnder(ctx, streams, o.Profile, "streams", processes); err != nil {
		return err
	}
	for _, p := range processes {
		if err := saveAll(ctx, p.admin, o.Profile, map[string]string{"allocs": p.name + "-allocs.pprof"}); err != nil {
			return err
		}
	}
	return nil
}

// profileUnder takes CPU profiles while load runs.
func profileUnder(ctx context.Context, load func() error, dir, name string, processes []watched) error {
	tasks := []func() error{load}
	for _, p := range processes {
		tasks = append(tasks, func() error {
			page, file := fmt.Sprintf("profile?seconds=%d", profileSeconds), fmt.Sprintf("%s-%s-cpu.pprof", p.name, name)
			return saveAll(ctx, p.admin, dir, map[string]string{page: file})
		})
	}
	return parallel(tasks, func(_ int, task func() error) error { return task() })
}

// saveAll stores profiling pages in files of a folder.
func saveAll(ctx context.Context, a rig.Admin, dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the folder for profiles: %w", err)
	}
	for page, file := range files {
		if err := a.Save(ctx, page, filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	return nil
}
