//go:build linux

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/postern-dev/postern/tests/agents"
	"github.com/postern-dev/postern/tests/command"
)

// quiet is the load average up to which figures are reliable.
const quiet = 1

// write prints the results as Markdown.
func (r *results) write(w io.Writer) {
	o := r.Options
	fmt.Fprintf(w, "## Measured %s\n\n%s; %d rounds of %v (requests) and %v (streams), %v in total. ",
		r.Began.Format("2006-01-02 15:04 MST"),
		machine(), o.Rounds, o.Load, o.Stream, r.Took.Round(time.Second))
	fmt.Fprintf(w, "Everything runs on loopback, with the load generator on the same cores. CPU times are from the "+
		"kernel's clock of each process (1 ns). The load average was %.1f before.\n\n", r.Load)
	for warning, due := range map[string]bool{
		"**The run is incomplete.**":                                !r.Complete,
		"**The machine was busy: times and rates are unreliable.**": r.Load > quiet,
		"Fewer than three rounds: coarse figures.":                  o.Rounds < 3,
	} {
		if due {
			fmt.Fprintf(w, "%s\n\n", warning)
		}
	}
	if o.Compare != "" {
		fmt.Fprintf(w, "The system old has the binaries of %s.\n\n", o.Compare)
	}
	r.writeRounds(w, partStreams, fmt.Sprintf("Streams of %.0f events per second; targets for postern, × caddy: "+
		"CPU of one ≤ 4.3, of 50 ≤ 2.4; added with 50: p50 ≤ 2.4, p99 ≤ 2.3", 1/o.Pace.Seconds()), o.Streams)
	fmt.Fprint(w, r.Turns)
	r.writeIdle(w)
	r.writeRounds(w, partRequests, "Closed loops: each client sends its next request at once, faster than any model; "+
		"target for postern with 16 clients: rate × caddy ≥ 0.75", o.Clients)
}

// figure formats a number with the given decimals, or "–" if there is none.
func figure(v float64, decimals int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	return fmt.Sprintf("%.*f", decimals, v)
}

// ranged formats the median of some values, and their range.
func ranged(values []float64, decimals int) string {
	if len(values) < 2 {
		return figure(command.Median(values), decimals)
	}
	return fmt.Sprintf("%s (%s–%s)", figure(command.Median(values), decimals), figure(slices.Min(values), decimals),
		figure(slices.Max(values), decimals))
}

// each returns one figure for each round.
func each[T, V any](rounds []T, value func(T) V) []V {
	values := make([]V, len(rounds))
	for i, v := range rounds {
		values[i] = value(v)
	}
	return values
}

// pairwise applies f to a[i] and b[i] for each round. It leaves out rounds that only one of them has.
func pairwise(a, b []float64, f func(a, b float64) float64) []float64 {
	out := make([]float64, min(len(a), len(b)))
	for i := range out {
		out[i] = f(a[i], b[i])
	}
	return out
}

// cpu returns the CPU time of all processes from gateway to model server, in microseconds.
func (f figures) cpu() float64 {
	return f.CPU[nameCaddy] + f.CPU[nameGateway] + f.CPU[nameConnector]
}

func ratio(a, b float64) float64      { return a / b }
func difference(a, b float64) float64 { return a - b }

// writeRounds prints the figures of the systems for several numbers of clients or streams. What a system adds is its
// difference from direct.
func (r *results) writeRounds(w io.Writer, part, title string, numbers []int) {
	t := &command.Table{Title: title}
	t.Add("in parallel", "system", "per second", "rate × caddy", "p50 ms", "p99 ms", "added p50 ms", "added p99 ms",
		"p50 × caddy", "p99 × caddy", "CPU µs each", "CPU × caddy", "CPU × postern", "of which gateway", "connector",
		"upstream")
	for _, n := range numbers {
		for _, s := range r.Options.Systems {
			if len(r.Rounds[point{part, s, n}]) > 0 {
				t.Add(r.row(part, s, n)...)
			}
		}
	}
	t.Write(w)
}

// row returns the row of a system.
func (r *results) row(part, s string, n int) []string {
	type values func(system string) []float64
	all := func(value func(figures) float64) values {
		return func(system string) []float64 { return each(r.Rounds[point{part, system, n}], value) }
	}
	rate, cpu := all(func(f figures) float64 { return f.Rate }), all(figures.cpu)
	p50, p99 := all(func(f figures) float64 { return f.P50 }), all(func(f figures) float64 { return f.P99 })
	added := func(v values) values {
		return func(system string) []float64 { return pairwise(v(system), v(direct), difference) }
	}
	beyond := func(v values) string { // what direct does not have
		if s == direct {
			return ""
		}
		return ranged(v(s), 3)
	}
	times := func(other string, v values) string {
		if s == direct || s == other || s == plain || !r.Options.has(other) {
			return ""
		}
		return ranged(pairwise(v(s), v(other), ratio), 2)
	}
	row := []string{
		fmt.Sprint(n), s, figure(command.Median(rate(s)), 0), times(plain, rate), figure(command.Median(p50(s)), 3),
		figure(command.Median(p99(s)), 3), beyond(added(p50)), beyond(added(p99)), times(plain, added(p50)),
		times(plain, added(p99)), figure(command.Median(cpu(s)), 1), times(plain, cpu), times(postern, cpu),
	}
	for _, name := range []string{nameGateway, nameConnector, nameUpstream} {
		row = append(row, figure(command.Median(all(func(f figures) float64 { return f.CPU[name] })(s)), 1))
	}
	return row
}

func (r *results) writeIdle(w io.Writer) {
	t := &command.Table{Title: "Memory; target for an idle tunnel over QUIC: RSS < 70 KB"}
	t.Add(slices.Concat([]string{"at rest"}, footprintHead)...)
	row := func(name string, decimals int, value func(int) float64) {
		cells := []string{name}
		for i := range footprintHead {
			cells = append(cells, figure(value(i), decimals))
		}
		t.Add(cells...)
	}
	rest := &command.Table{Title: "Idle tunnels"}
	rest.Add("tunnels", "system", "% of a core", "µs per second each", "KB each in the connectors", "all online within s")
	for _, i := range r.Idle {
		if i.System == plain {
			row("plain Caddy", 0, func(k int) float64 { return i.Before[k] })
			continue
		}
		n := float64(i.Tunnels)
		row("gateway, no tunnels", 0, func(k int) float64 { return i.Before[k] })
		row(fmt.Sprintf("gateway, %d tunnels: %s", i.Tunnels, i.System), 0, func(k int) float64 { return i.After[k] })
		row("for each tunnel", 1, func(k int) float64 { return (i.After[k] - i.Before[k]) / n })
		rest.Add(fmt.Sprint(i.Tunnels), i.System, figure(i.CPU, 1), figure(i.CPU*1e4/n, 1), figure(float64(i.Holder)/n, 1),
			figure(i.DialIn.Seconds(), 1))
	}
	t.Write(w)
	rest.Write(w)
	if len(r.Idle) > 0 {
		fmt.Fprintf(w, "RSS with garbage is measured %v after the last connection, the other figures after a garbage "+
			"collection, which Go makes every two minutes. Connectors start at intervals of %v, all of them in one process. "+
			"CPU usage is that of the gateway. With 450 tunnels or more, it answers a ping of each tunnel every 4.5 s.\n\n",
			r.Options.Settle, agents.StartInterval)
	}
}
