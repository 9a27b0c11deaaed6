//go:build linux

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

const (
	// accountClients is how many clients send requests while allocations are
	// counted and profiles taken.
	accountClients = 16
	// profileSeconds is how long a CPU profile takes.
	profileSeconds = 5
)

// measureAllocations counts what each Caddy and the connector allocate per
// request, by name. Postern's connector is replaced by one with profiling pages:
// this comes last.
func (b *builder) measureAllocations(ctx context.Context, o options, s *system) (map[string]allocations, error) {
	admins := map[string]rig.Admin{s.Processes[1].name: s.gateway.Admin}
	if s.connector != nil {
		var err error
		if admins[nameConnector], err = b.replaceConnector(ctx, s); err != nil {
			return nil, err
		}
	}
	if err := s.sendRequests(ctx, o.Counted/4+1); err != nil { // fills pools
		return nil, err
	}
	result := map[string]allocations{}
	for name, admin := range admins {
		var err error
		if result[name], err = s.countAllocations(ctx, admin, o.Counted); err != nil {
			return nil, err
		}
	}
	if o.Profile == "" {
		return result, nil
	}
	return result, s.saveProfiles(ctx, o, admins)
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
	p, address, err := startRole(b.rig, nameConnector, roleTunnels, config)
	if err != nil {
		return "", err
	}
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
	each := func(of func(rig.Heap) int64) float64 {
		return float64(of(readings[2])-2*of(readings[1])+of(readings[0])) / float64(requests)
	}
	return allocations{
		Objects: each(func(h rig.Heap) int64 { return h.Mallocs }),
		Bytes:   each(func(h rig.Heap) int64 { return h.Bytes }),
	}, nil
}

// sendRequests sends a number of requests.
func (s *system) sendRequests(ctx context.Context, n int) error {
	clients, err := s.dialAll(accountClients, time.Minute)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	what := s.Target.whole(smallAnswer, 0)
	var sent atomic.Int64
	return parallel(clients, func(_ int, c *client) error {
		for sent.Add(1) <= int64(n) && ctx.Err() == nil {
			if err := c.do(what); err != nil {
				return err
			}
		}
		return context.Cause(ctx)
	})
}

// saveProfiles takes profiles of all processes at a time: CPU under requests,
// CPU under streams, and what they have allocated since they started.
func (s *system) saveProfiles(ctx context.Context, o options, admins map[string]rig.Admin) error {
	o.Load, o.Stream = (profileSeconds+1)*time.Second, (profileSeconds+1)*time.Second
	loads := map[string]func() error{
		partRequests: func() error {
			_, err := s.measureRequests(ctx, o, accountClients, s.Target.whole(smallAnswer, 0))
			return err
		},
		partStreams: func() error {
			_, err := s.measureStreams(ctx, o, 50)
			return err
		},
	}
	for part, load := range loads {
		tasks := []func() error{load}
		for name, a := range admins {
			tasks = append(tasks, func() error {
				return save(ctx, a, o.Profile, fmt.Sprintf("profile?seconds=%d", profileSeconds), s.Name+"-"+name+"-"+part+"-cpu")
			})
		}
		if err := parallel(tasks, func(_ int, task func() error) error { return task() }); err != nil {
			return err
		}
	}
	for name, a := range admins {
		if err := save(ctx, a, o.Profile, "allocs", s.Name+"-"+name+"-allocs"); err != nil {
			return err
		}
	}
	return nil
}

// save stores a profiling page in a folder, if there is one.
func save(ctx context.Context, a rig.Admin, dir, page, name string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating the folder for profiles: %w", err)
	}
	return a.Save(ctx, page, filepath.Join(dir, name+".pprof"))
}
