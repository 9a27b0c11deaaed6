//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/upstream/play"
)

const (
	fastStreams   = 8
	fastEvents    = 1000 // per stream
	memoryClients = 64
)

// measureFast reads n streams in parallel, without a pace. The rate and the CPU time are per event, the times
// per stream.
func (s *system) measureFast(ctx context.Context, o options, n int) (figures, error) {
	const notTokens = 4 // the role, the finish, the usage and the end
	f, err := s.measureRequests(ctx, o, n, s.Target.streamed(play.Script{Tokens: fastEvents - notTokens}, 0))
	f.Rate *= fastEvents
	for name := range f.CPU {
		f.CPU[name] /= fastEvents
	}
	return f, err
}

// measureUploads sends large bodies, one after the other. The rate is in MB per second for the median body,
// because creating the next body takes time, too.
func (s *system) measureUploads(ctx context.Context, o options, kb int, prompt func(n int) string) (figures, error) {
	f, err := s.measurePrompts(ctx, o, 1, func() string { return prompt(kb * 1000) })
	f.Rate = float64(kb) / f.P50
	return f, err
}

// memory is the RSS of a process in KB before, during and after large bodies.
type memory struct {
	system  string
	process process
	figures [3]int
	loaded  time.Time
}

// memory measures the memory of new systems. All of them rest at the same time.
func (r *results) memory(ctx context.Context, b *builder) error {
	o := r.Options
	if !o.measures(partMemory) {
		return nil
	}
	systems, stop, err := b.buildAll(ctx, o.Systems)
	defer stop()
	if err != nil {
		return err
	}
	texts := make([]string, memoryClients) // every system gets the same texts
	for i := range texts {
		texts[i] = r.texts.new(o.Memory * 1000)
	}
	for _, s := range systems {
		command.Progress("memory: %s", s.Name)
		first := len(r.Memory)
		for _, p := range s.Processes[1:] { // without the upstream
			r.Memory = append(r.Memory, memory{system: s.Name, process: p})
		}
		if err := s.measureMemory(ctx, texts, r.Memory[first:]); err != nil {
			return fmt.Errorf("uploading to %s: %w", s.Name, err)
		}
	}
	command.Progress("memory: at rest for %v", o.Rest)
	for i, m := range r.Memory {
		if err := command.Pause(ctx, time.Until(m.loaded.Add(o.Rest))); err != nil {
			return err
		}
		if err := read(r.Memory[i:i+1], 2, "VmRSS:"); err != nil {
			return err
		}
	}
	return nil
}

// read reads a figure from /proc for each process.
func read(all []memory, figure int, label string) (err error) {
	for i := range all {
		if all[i].figures[figure], err = all[i].process.Kilobytes("status", label); err != nil {
			return err
		}
	}
	return nil
}

// measureMemory sends all of the prompts at the same time, each with its own client.
func (s *system) measureMemory(ctx context.Context, prompts []string, processes []memory) error {
	tasks := make([]task, len(prompts))
	for i, prompt := range prompts {
		tasks[i] = s.Target.ask(smallAnswer, prompt)
	}
	clients, err := s.dialAll(len(tasks), answersLimit)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if err := read(processes, 0, "VmRSS:"); err != nil {
		return err
	}
	for _, m := range processes {
		// This resets VmHWM, see proc(5).
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", m.process.Pid()), []byte("5"), 0); err != nil {
			return fmt.Errorf("resetting the peak of memory: %w", err)
		}
	}
	if err := parallel(clients, func(i int, c *client) error { return c.do(tasks[i]) }); err != nil {
		return err
	}
	for i := range processes {
		processes[i].loaded = time.Now()
	}
	return read(processes, 1, "VmHWM:")
}

// writeMemory prints the memory of processes before, during and after large bodies.
func (r *results) writeMemory(w io.Writer) {
	t := &command.Table{Title: fmt.Sprintf("Memory with %d clients that send %d KB each at the same time, RSS in MB",
		memoryClients, r.Options.Memory)}
	t.Add("system", "process", "after start", "peak", fmt.Sprintf("%v later", r.Options.Rest))
	for _, m := range r.Memory {
		row := []string{m.system, m.process.name}
		for _, kb := range m.figures {
			row = append(row, figure(float64(kb)/1024, 0))
		}
		t.Add(row...)
	}
	t.Write(w)
}
