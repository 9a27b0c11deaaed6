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

// quietForeign is the load by others, in percent, above which the report has a warning.
const quietForeign = 5

// write prints the results as Markdown.
func (r *results) write(w io.Writer) {
	o := r.Options
	fmt.Fprintf(w, "## Measured %s\n\n%s; %d rounds of %v (requests) and %v (streams), %v in total. ",
		r.Began.Format("2006-01-02 15:04 MST"),
		machine(), o.Rounds, o.Load, o.Stream, r.Took.Round(time.Second))
	fmt.Fprintf(w, "Everything runs on loopback, with the load generator on the same cores. CPU times are from the "+
		"kernel's clock of each process (1 ns). Other processes used %.1f %% of the machine, "+
		"and its host withheld %.1f %%.\n\n", r.Foreign, r.Stolen)
	for warning, due := range map[string]bool{
		"**The run is incomplete.**":                                !r.Complete,
		"**The machine was busy: times and rates are unreliable.**": r.Foreign > quietForeign,
		"Fewer than three rounds: coarse figures.":                  o.Rounds < 3,
	} {
		if due {
			fmt.Fprintf(w, "%s\n\n", warning)
		}
	}
	if o.Compare != "" {
		fmt.Fprintf(w, "The system old has the binaries of %s.\n\n", o.Compare)
	}
	r.writeStreams(w)
	fmt.Fprint(w, r.Turns)
	r.writeIdle(w)
	r.writeRounds(w, partUploads, "KB", "Bodies of text, one at a time; MB per second for the median body", o.Uploads)
	r.writeRounds(w, partRequests, "in parallel",
		"Closed loops: each client sends its next request at once, faster than any model; target for postern with 16 "+
			"clients: × caddy ≥ 0.75", o.Clients)
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

// writeRounds prints the figures of the systems for several numbers of clients or streams, or sizes of bodies.
func (r *results) writeRounds(w io.Writer, part, number, title string, numbers []int) {
	t := &command.Table{Title: title}
	t.Add(number, "system", "per second", "× direct", "× caddy", "× postern", "p50 ms", "p90 ms", "p99 ms",
		"p50 more than direct", "p99 more than direct",
		"p50 more than postern", "CPU × postern", "CPU µs each", "of which gateway", "connector", "upstream")
	cpu := figures.cpu
	for _, n := range numbers {
		for _, s := range r.Options.Systems {
			all := func(system string, value func(figures) float64) []float64 {
				return each(r.Rounds[point{part, system, n}], value)
			}
			if len(r.Rounds[point{part, s, n}]) == 0 {
				continue
			}
			rate, p50 := func(f figures) float64 { return f.Rate }, func(f figures) float64 { return f.P50 }
			p90, p99 := func(f figures) float64 { return f.P90 }, func(f figures) float64 { return f.P99 }
			row := []string{fmt.Sprint(n), s, figure(command.Median(all(s, rate)), 0)}
			for i, other := range allSystems[:3] {
				text := ""
				if s == old || i < slices.Index(allSystems, s) {
					text = ranged(pairwise(all(s, rate), all(other, rate), ratio), 2)
				}
				row = append(row, text)
			}
			row = append(row, figure(command.Median(all(s, p50)), 3), figure(command.Median(all(s, p90)), 3),
				figure(command.Median(all(s, p99)), 3), "", "", "", "", "")
			if s != direct {
				row[9] = ranged(pairwise(all(s, p50), all(direct, p50), difference), 3)
				row[10] = ranged(pairwise(all(s, p99), all(direct, p99), difference), 3)
				row[13] = figure(command.Median(all(s, cpu)), 1)
			}
			if s == old {
				row[11] = ranged(pairwise(all(s, p50), all(postern, p50), difference), 3)
				row[12] = ranged(pairwise(all(s, cpu), all(postern, cpu), ratio), 2)
			}
			for _, name := range []string{nameGateway, nameConnector, nameUpstream} {
				text := ""
				if v := command.Median(all(s, func(f figures) float64 { return f.CPU[name] })); v != 0 {
					text = figure(v, 1)
				}
				row = append(row, text)
			}
			t.Add(row...)
		}
	}
	t.Write(w)
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
