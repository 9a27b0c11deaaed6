//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
)

// A footprint is what a process occupies while it does nothing.
type footprint [6]float64

// footprintHead names its figures. RSS counts pages that are shared with others in
// full, PSS in part.
var footprintHead = []string{"RSS KB", "PSS KB", "RSS with garbage KB", "goroutines", "live heap KB", "stacks KB"}

// footprintOf looks at the Caddy of a system. Go collects the garbage of an idle
// process every two minutes, and gives memory back in the background: here it is
// asked for at once, and given the time to do so.
func (s *system) footprintOf(ctx context.Context, settle time.Duration) (f footprint, err error) {
	memory := func(to *float64, label string) {
		n := 0
		if err == nil {
			n, err = s.gateway.Process.Kilobytes("smaps_rollup", label)
			*to = float64(n)
		}
	}
	memory(&f[2], "Rss:")
	if err != nil {
		return f, err
	}
	n, err := s.gateway.Admin.Goroutines(ctx)
	if err != nil {
		return f, err
	}
	// More than once: pools keep what they hold over one collection.
	var heap rig.Heap
	for range 5 {
		if heap, err = s.gateway.Admin.Heap(ctx, true); err != nil {
			return f, err
		}
	}
	f[3], f[4], f[5] = float64(n), float64(heap.Live)/1024, float64(heap.Stacks)/1024
	err = command.Pause(ctx, settle)
	memory(&f[0], "Rss:")
	memory(&f[1], "Pss:")
	return f, err
}

// idle is a gateway without and with idle tunnels.
type idle struct {
	System        string // whose transport they have
	Tunnels       int
	Before, After footprint
	Holder        int           // RSS of the process that holds all of the other ends, KB
	DialIn        time.Duration // until all were online
	CPU           float64       // of the gateway for all idle tunnels, in percent of one core
}

// measureIdle starts a gateway of its own and lets connectors dial in.
func (b *builder) measureIdle(ctx context.Context, o options, name string, tunnels int) (result idle, err error) {
	result = idle{System: name, Tunnels: tunnels}
	s := b.system(name)
	if err := b.startGateway(ctx, s); err != nil {
		return result, err
	}
	defer s.stop()
	// Before the connectors are created: what creating them leaves in the heap
	// would hide a part of what tunnels take.
	if result.Before, err = s.footprintOf(ctx, o.Settle/2); err != nil {
		return result, err
	}
	configs, err := b.connectorConfigs(ctx, s, tunnels)
	if err != nil {
		return result, err
	}
	defer configs.Close()
	began := time.Now()
	holder, _, err := startRole(b.rig, "tunnels", roleTunnels, configs)
	if err != nil {
		return result, err
	}
	defer stop(holder)
	if err := s.waitOnline(ctx, tunnels); err != nil {
		return result, fmt.Errorf("%w; the last output of their process:\n%s", err, holder.Tail())
	}
	result.DialIn = time.Since(began)
	if result.CPU, err = idleCPU(ctx, s.gateway.Process.Pid(), o.Settle); err != nil {
		return result, err
	}
	if result.Holder, err = holder.Kilobytes("status", "VmRSS:"); err != nil {
		return result, err
	}
	if result.After, err = s.footprintOf(ctx, o.Settle/2); err != nil {
		return result, err
	}
	for _, page := range []string{"heap", "goroutine"} {
		if err := save(ctx, s.gateway.Admin, o.Profile, page, name+"-idle-"+page); err != nil {
			return result, err
		}
	}
	return result, s.waitOnline(ctx, tunnels) // none was lost meanwhile
}

// idleCPU waits and returns what a process uses meanwhile, in percent of one
// core. The first half of the time, in which it still settles, is left out.
func idleCPU(ctx context.Context, pid int, d time.Duration) (float64, error) {
	if err := command.Pause(ctx, d/2); err != nil {
		return 0, err
	}
	before, err := cpuTime(pid)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := command.Pause(ctx, d-d/2); err != nil {
		return 0, err
	}
	after, err := cpuTime(pid)
	return 100 * float64(after-before) / float64(time.Since(began)), err
}

// connectorConfigs creates connectors and writes their configurations to a file,
// which it returns to be read.
func (b *builder) connectorConfigs(ctx context.Context, s *system, n int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(b.rig.Dir, "connectors.json"), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("writing configurations: %w", err)
	}
	enc := json.NewEncoder(f)
	err = s.gateway.Admin.Manage(ctx, http.MethodPatch, "/accounts/default", map[string]int{"max_connectors": n + 100}, nil)
	for i := 0; i < n && err == nil; i++ {
		var c *rig.Connector
		if c, err = s.newConnector(ctx, fmt.Sprintf("idle-%d", i)); err == nil {
			config := b.connectorConfig(s)
			config["tunnel_token"] = c.Token
			err = enc.Encode(config)
		}
	}
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("creating connectors: %w", err)
	}
	return f, nil
}
