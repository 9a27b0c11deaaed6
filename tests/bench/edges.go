//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
)

// edgeCount is the number of gateways in the part edges.
const edgeCount = 3

// edgeTunnels are the figures of connectors with tunnels to three gateways with one store, before and after
// one of these is killed.
type edgeTunnels struct {
	Connectors int
	Before     []float64     // RSS of each gateway without connectors, KB
	After      []float64     // RSS of each gateway with connectors, KB
	CPU        []float64     // each gateway, in percent of one core
	Etcd       float64       // etcd, in percent of one core
	DialIn     time.Duration // until all connectors had two tunnels
	Killed     int           // tunnels of the killed gateway
	Back       time.Duration // until all connectors had two tunnels at the others
}

// edgeOptions returns the options of an edge.
func (b *builder) edgeOptions(name, url, more string) rig.GatewayOptions {
	return rig.GatewayOptions{
		Name: name, Host: b.host, Data: filepath.Join(b.rig.Dir, name),
		Storage: "etcd {\n endpoints " + url + "\n}", App: "edge {\n name " + name + "\n peer $UDP\n" + more + "\n}",
	}
}

// startEdges starts two gateways that share a store. Clients use the first one, and the connector has its only
// tunnel to the second one.
func (b *builder) startEdges(ctx context.Context, s *system) error {
	_, url, err := b.rig.Etcd(ctx)
	if err != nil {
		return err
	}
	if err := b.startCaddy(ctx, s, nameEntry, b.edgeOptions(nameEntry, url, "")); err != nil {
		return err
	}
	entry := s.Target.Addr
	err = b.startCaddy(ctx, s, nameGateway, b.edgeOptions(nameGateway, url, ""))
	s.Target.Addr = entry
	return err
}

// measureEdges connects connectors to three gateways and kills one.
func (b *builder) measureEdges(ctx context.Context, o options, connectors int) (result edgeTunnels, err error) {
	result = edgeTunnels{Connectors: connectors}
	s := b.system(postern)
	etcd, url, err := b.rig.Etcd(ctx)
	if err != nil {
		return result, err
	}
	defer stop(etcd)
	var edges []*rig.Gateway
	defer func() { s.stop() }()
	for i := range edgeCount {
		name := fmt.Sprintf("edge-%d-%d", connectors, i)
		if err := b.startCaddy(ctx, s, name, b.edgeOptions(name, url, "advertise $UDP")); err != nil {
			return result, err
		}
		edges = append(edges, s.gateway)
	}
	if result.Before, err = residents(edges); err != nil {
		return result, err
	}
	configs, err := b.connectorConfigs(ctx, s, connectors)
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
	if err := awaitTunnels(ctx, edges, connectors); err != nil {
		return result, fmt.Errorf("%w; the last output of their process:\n%s", err, holder.Tail())
	}
	result.DialIn = time.Since(began)
	if err := result.atRest(ctx, o, edges, etcd); err != nil {
		return result, err
	}
	victim := edges[0]
	killed, err := countTunnels(ctx, edges[1], victim.Process.Name)
	if err != nil {
		return result, err
	}
	result.Killed = killed
	began = time.Now()
	victim.Process.Kill()
	if err := awaitTunnels(ctx, edges[1:], connectors); err != nil {
		return result, err
	}
	result.Back = time.Since(began)
	return result, nil
}

// atRest measures the CPU time and memory of idle processes.
func (r *edgeTunnels) atRest(ctx context.Context, o options, edges []*rig.Gateway, etcd *rig.Process) (err error) {
	var processes []*rig.Process
	for _, e := range edges {
		processes = append(processes, e.Process)
	}
	processes = append(processes, etcd)
	r.CPU = make([]float64, len(processes))
	if err := command.Pause(ctx, o.Settle); err != nil {
		return err
	}
	if err := parallel(processes, func(i int, p *rig.Process) (err error) {
		r.CPU[i], err = idleCPU(ctx, p.Pid(), o.Settle)
		return err
	}); err != nil {
		return err
	}
	r.Etcd, r.CPU = r.CPU[len(edges)], r.CPU[:len(edges)]
	r.After, err = residents(edges)
	return err
}

// residents returns the RSS of gateways in KB after a garbage collection.
func residents(edges []*rig.Gateway) (kilobytes []float64, err error) {
	for _, e := range edges {
		if _, err := e.Admin.Heap(context.Background(), true); err != nil {
			return nil, err
		}
		n, err := e.Process.Kilobytes("status", "VmRSS:")
		if err != nil {
			return nil, err
		}
		kilobytes = append(kilobytes, float64(n))
	}
	return kilobytes, nil
}

// countTunnels returns the number of connectors with a tunnel to an edge, as another edge reports it.
func countTunnels(ctx context.Context, g *rig.Gateway, edge string) (n int, err error) {
	list, err := g.Connectors(ctx)
	for _, c := range list {
		if slices.ContainsFunc(c.Edges, func(name string) bool { return name == edge }) {
			n++
		}
	}
	return n, err
}

// awaitTunnels waits until all edges report two tunnels for each connector, both to these edges.
func awaitTunnels(ctx context.Context, edges []*rig.Gateway, connectors int) error {
	names := map[string]bool{}
	for _, e := range edges {
		names[e.Process.Name] = true
	}
	return rig.Poll(ctx, connectLimit, time.Second, "two tunnels for each connector", func(ctx context.Context) error {
		for _, e := range edges {
			list, err := e.Connectors(ctx)
			if err != nil {
				return err
			}
			both := 0
			for _, c := range list {
				if len(c.Edges) == 2 && names[c.Edges[0]] && names[c.Edges[1]] {
					both++
				}
			}
			if both != connectors {
				return fmt.Errorf("%s lists %d of %d connectors with two tunnels", e.Process.Name, both, connectors)
			}
		}
		return nil
	})
}

// killedEdges measures connectors with tunnels to two of three gateways.
func (r *results) killedEdges(ctx context.Context, b *builder) error {
	for _, n := range r.Options.Tunnels {
		if !r.Options.measures(partEdges) {
			break
		}
		command.Progress("%d connectors at %d edges", n, edgeCount)
		measured, err := b.measureEdges(ctx, r.Options, n)
		if err != nil {
			return fmt.Errorf("measuring %d connectors at %d edges: %w", n, edgeCount, err)
		}
		r.Edges = append(r.Edges, measured)
	}
	return nil
}

func (r *results) writeEdges(w io.Writer) {
	t := &command.Table{Title: fmt.Sprintf("Connectors with two tunnels each, at %d edges; one is killed: target: all "+
		"tunnels < 30 s", edgeCount)}
	t.Add("connectors", "KB per tunnel", "% of a core per edge", "etcd", "all connected within s",
		"tunnels lost", "all reconnected within s")
	for _, l := range r.Edges {
		var grown, cpu float64
		for i := range l.After {
			grown += l.After[i] - l.Before[i]
			cpu += l.CPU[i] / float64(len(l.CPU))
		}
		t.Add(fmt.Sprint(l.Connectors), figure(grown/float64(2*l.Connectors), 1), figure(cpu, 1), figure(l.Etcd, 1),
			figure(l.DialIn.Seconds(), 1), fmt.Sprint(l.Killed), figure(l.Back.Seconds(), 1))
	}
	if len(r.Edges) > 0 {
		t.Write(w)
	}
}
