package main

import (
	"fmt"
	"io"

	"github.com/postern-dev/postern/tests/agents"
)

// perTunnel returns by how much a figure grew for each tunnel.
func (i *idle) perTunnel(after, before int) float64 {
	return float64(after-before) / float64(i.Tunnels)
}

// memory, goroutines and the rest of the processor that each tunnel takes.
func (i *idle) rss() float64        { return i.perTunnel(i.After.Memory.RSS, i.Before.Memory.RSS) }
func (i *idle) goroutines() float64 { return i.perTunnel(i.After.Goroutines, i.Before.Goroutines) }
func (i *idle) holder() float64     { return float64(i.Holder.RSS) / float64(i.Tunnels) }

func (r *results) writeIdle(w io.Writer) {
	if r.Caddy == nil && len(r.Idle) == 0 {
		return
	}
	t := &table{}
	t.add("at rest", "RSS KB", "PSS KB", "RSS with garbage KB", "goroutines", "live heap KB", "stacks KB")
	row := func(name string, f footprint) {
		t.add(name, fmt.Sprint(f.Memory.RSS), fmt.Sprint(f.Memory.PSS), fmt.Sprint(f.AsItIs.RSS), fmt.Sprint(f.Goroutines),
			fmt.Sprint(f.Heap.Live/1024), fmt.Sprint(f.Heap.Stacks/1024))
	}
	if r.Caddy != nil {
		row("plain Caddy", *r.Caddy)
	}
	for _, i := range r.Idle {
		row("gateway, no tunnels", i.Before)
		row(fmt.Sprintf("gateway, %d tunnels: %s", i.Tunnels, transportOf(i.System)), i.After)
		before, after := i.Before, i.After
		kilobytes := func(after, before int64) string { return figure(i.perTunnel(int(after), int(before))/1024, 1) }
		t.add("for each tunnel",
			figure(i.rss(), 1), figure(i.perTunnel(after.Memory.PSS, before.Memory.PSS), 1),
			figure(i.perTunnel(after.AsItIs.RSS, before.AsItIs.RSS), 1), figure(i.goroutines(), 2),
			kilobytes(after.Heap.Live, before.Heap.Live), kilobytes(after.Heap.Stacks, before.Heap.Stacks))
	}
	t.write(w, "Memory")
	if len(r.Idle) == 0 {
		return
	}
	t = &table{}
	t.add("idle tunnels", "transport", "% of a core", "µs a second each", "KB each at their other ends", "all online within s")
	for _, i := range r.Idle {
		t.add(fmt.Sprint(i.Tunnels), transportOf(i.System), figure(i.CPU, 1), figure(i.CPU*1e4/float64(i.Tunnels), 1),
			figure(i.holder(), 1), figure(i.DialIn.Seconds(), 1))
	}
	t.write(w, "Idle tunnels")
	fmt.Fprintf(w, "With garbage: %v after the last one dialed in. The other figures: after a garbage collection, as Go makes one every two minutes. "+
		"Connectors start %v apart, and all other ends are in one process. Processor: of the gateway, which answers a ping of each tunnel "+
		"every 9 s when there are 900 or more.\n\n", r.Options.Settle, agents.StartInterval)
}
