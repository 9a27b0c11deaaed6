//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
)

// A footprint has the memory and goroutines of an idle process.
type footprint [6]float64

// footprintHead has the names of these figures. RSS counts all shared pages, PSS a part of them.
var footprintHead = []string{"RSS KB", "PSS KB", "RSS with garbage KB", "goroutines", "live heap KB", "stacks KB"}

// footprintOf returns the footprint of a system's Caddy. Go collects the garbage of an idle process every two
// minutes and returns memory in the background. footprintOf forces a collection and waits for that.
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
	// Several times, because pools keep their objects during one collection.
	var heap rig.Heap
	for range 5 {
		if heap, err = s.gateway.Admin.Heap(ctx); err != nil {
			return f, err
		}
	}
	f[3], f[4], f[5] = float64(n), float64(heap.Live)/1024, float64(heap.Stacks)/1024
	err = command.Pause(ctx, settle)
	memory(&f[0], "Rss:")
	memory(&f[1], "Pss:")
	return f, err
}

// idle has the figures of a gateway without and with idle tunnels.
type idle struct {
	System        string // determines their transport
	Tunnels       int
	Before, After footprint
	Holder        int           // RSS of the process that runs all connectors, KB
	DialIn        time.Duration // time until all were online
	CPU           float64       // of the gateway with all idle tunnels, in percent of one core
}

// measureIdle starts a plain Caddy, or a gateway with connectors.
func (b *builder) measureIdle(ctx context.Context, o options, name string, tunnels int) (result idle, err error) {
	result = idle{System: name, Tunnels: tunnels}
	s, start := b.system(name), b.startGateway
	if name == plain {
		start = b.startPlain
	}
	if err := start(ctx, s); err != nil {
		return result, err
	}
	defer s.stop()
	// The connectors do not exist yet: creating them leaves garbage in the heap, which would hide a part of the
	// memory of tunnels.
	if result.Before, err = s.footprintOf(ctx, o.Settle/2); err != nil || tunnels == 0 {
		return result, err
	}
	configs, err := b.connectorConfigs(ctx, s, tunnels)
	if err != nil {
		return result, err
	}
	defer configs.Close()
	began := time.Now()
	holder, _, err := program().Start(b.rig.Rig, "tunnels", roleTunnels, configs)
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
	return result, s.waitOnline(ctx, tunnels) // checks that no tunnel was lost
}

// idleCPU returns the CPU usage of a process during a period, in percent of one core. It leaves out the first
// half, in which the process may still be busy.
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

// connectorConfigs creates connectors, writes their configurations to a file, and opens it for reading.
func (b *builder) connectorConfigs(ctx context.Context, s *system, n int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(b.rig.Dir, "connectors.json"), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("writing configurations: %w", err)
	}
	enc := json.NewEncoder(f)
	err = s.gateway.Admin.Manage(ctx, http.MethodPatch, "/accounts/default",
		map[string]int{"max_connectors": n + 100}, nil)
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

// cpuTime returns the CPU time of all threads of a process, including those that have ended. It has
// nanoseconds, while /proc/PID/stat has hundredths of a second.
func cpuTime(pid int) (time.Duration, error) {
	// The id of a process's clock consists of its pid and CPUCLOCK_SCHED (2), see clock_getcpuclockid(3).
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|2, &t); err != nil {
		return 0, fmt.Errorf("reading the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// cpu returns the CPU time of each process in microseconds.
func (s *system) cpu() (map[string]float64, error) {
	times := map[string]float64{}
	for _, p := range s.Processes {
		t, err := cpuTime(p.Pid())
		if err != nil {
			return nil, err
		}
		times[p.name] = float64(t) / float64(time.Microsecond)
	}
	return times, nil
}

// loadAverage returns the number of processes that wanted a processor in the last minute.
func loadAverage() (average float64) {
	text, _ := os.ReadFile("/proc/loadavg") // it exists on every Linux
	_, _ = fmt.Sscan(string(text), &average)
	return average
}

// machine describes the machine.
func machine() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease") // these exist on every Linux
	cpus, _ := os.ReadFile("/proc/cpuinfo")
	_, name, _ := strings.Cut(string(cpus), "model name\t: ")
	name, _, _ = strings.Cut(name, "\n")
	return fmt.Sprintf("%s, %d cores, Linux %s, %s", name, runtime.NumCPU(), strings.TrimSpace(string(kernel)),
		runtime.Version())
}
