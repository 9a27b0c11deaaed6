package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"time"
)

// write prints the results as Markdown.
func (r *results) write(w io.Writer) {
	o := r.Options
	fmt.Fprintf(w, "## Measured %s\n\n", r.Began.Format("2006-01-02 15:04 MST"))
	fmt.Fprintf(w, "%s, %d cores, Linux %s, %s; %d rounds of %v (requests) and %v (streams), in all %v. ",
		processor(), runtime.NumCPU(), kernel(), runtime.Version(), o.Rounds, o.Load, o.Stream, r.Took.Round(time.Second))
	fmt.Fprintf(w, "All on loopback, load generator on the same cores. CPU by the kernel's clock of each process (1 ns). "+
		"Meanwhile others used %.1f %% of the machine, and %.1f %% was withheld by its host.\n\n", r.Foreign, r.Stolen)
	if !r.Complete {
		fmt.Fprint(w, "**The run was not finished: figures are missing.**\n\n")
	}
	if r.Foreign > quietForeign {
		fmt.Fprint(w, "**The machine was busy with other things: times and rates mean little.**\n\n")
	}
	if o.Rounds < 3 {
		fmt.Fprint(w, "Fewer than three rounds: coarse figures.\n\n")
	}
	for _, write := range []func(io.Writer){
		r.writeAims, r.writeLoads, r.writeStreams, r.writeTransports, r.writeAnswers, r.writeAllocations, r.writeIdle, r.writeLoss,
	} {
		write(w)
	}
}

// quietForeign is how much of the machine others may use, in percent, before
// the report warns.
const quietForeign = 5

// A table is printed with its columns aligned.
type table struct{ rows [][]string }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write prints the table, the first row as its head; the first column is
// aligned to the left, the others to the right.
func (t *table) write(w io.Writer, title string) {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)), 2)
		}
	}
	fmt.Fprintf(w, "### %s\n\n", title)
	for n, row := range t.rows {
		writeRow(w, row, widths)
		if n == 0 {
			rule := make([]string, len(widths))
			for i, width := range widths {
				rule[i] = strings.Repeat("-", width-1) + ":"
			}
			rule[0] = strings.Repeat("-", widths[0])
			writeRow(w, rule, widths)
		}
	}
	fmt.Fprintln(w)
}

func writeRow(w io.Writer, row []string, widths []int) {
	for i, cell := range row {
		space := strings.Repeat(" ", widths[i]-len([]rune(cell)))
		if i == 0 {
			cell += space
		} else {
			cell = space + cell
		}
		fmt.Fprintf(w, "| %s ", cell)
	}
	fmt.Fprintln(w, "|")
}

// figure formats a number with the given decimals, or "–" if there is none.
func figure(v float64, decimals int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	return fmt.Sprintf("%.*f", decimals, v)
}

// ranged formats a spread as "median (min–max)".
func ranged(s spread, decimals int) string {
	if math.IsNaN(s.Median) {
		return "–"
	}
	return fmt.Sprintf("%s (%s–%s)", figure(s.Median, decimals), figure(s.Min, decimals), figure(s.Max, decimals))
}

// loads returns one figure of a system over the rounds.
func (r *results) loads(system string, n int, of func(load) float64) []float64 {
	return each(r.Loads[point{system, n}], of)
}

// streams returns one figure of a system over the rounds.
func (r *results) streams(system string, n int, of func(stream) float64) []float64 {
	return each(r.Streams[point{system, n}], of)
}

func each[T any](rounds []T, of func(T) float64) []float64 {
	values := make([]float64, len(rounds))
	for i, v := range rounds {
		values[i] = of(v)
	}
	return values
}

// What loads and streams consist of.
func rateOf(l load) float64        { return l.Rate }
func loadP50(l load) float64       { return l.P50 }
func loadP99(l load) float64       { return l.P99 }
func streamP50(s stream) float64   { return s.P50 }
func streamP99(s stream) float64   { return s.P99 }
func loadCPU(l load) float64       { return hops(l.CPU) }
func streamCPU(s stream) float64   { return hops(s.CPU) }
func middle(v []float64) float64   { return spreadOf(v).Median }
func percent(part, all int) string { return figure(100*float64(part)/float64(all), 2) + " %" }

// hops adds up the CPU of everything between client and upstream.
func hops(cpu map[string]float64) float64 {
	return cpu[nameCaddy] + cpu[nameGateway] + cpu[nameConnector]
}

func (r *results) writeLoads(w io.Writer) {
	if len(r.Loads) == 0 {
		return
	}
	t := &table{}
	t.add("clients", "system", "requests/s", "× direct", "× caddy", "p50 ms", "p99 ms", "CPU µs/request", "of it gateway", "connector", "upstream")
	for _, n := range r.Options.Clients {
		for _, s := range r.Options.Systems {
			rate := r.loads(s, n, rateOf)
			of := func(name string) string {
				v := middle(r.loads(s, n, func(l load) float64 { return l.CPU[name] }))
				if v == 0 {
					return ""
				}
				return figure(v, 0)
			}
			against := func(other string) string {
				if s == direct || s == other {
					return ""
				}
				return ranged(spreadOf(pairwise(rate, r.loads(other, n, rateOf), ratio)), 2)
			}
			cpu := ""
			if s != direct {
				cpu = figure(middle(r.loads(s, n, loadCPU)), 0)
			}
			t.add(fmt.Sprint(n), s, figure(middle(rate), 0), against(direct), against(plain),
				figure(middle(r.loads(s, n, loadP50)), 3), figure(middle(r.loads(s, n, loadP99)), 2),
				cpu, of(nameGateway), of(nameConnector), of(nameUpstream))
		}
	}
	t.write(w, "Requests")
}

func (r *results) writeStreams(w io.Writer) {
	if len(r.Streams) == 0 {
		return
	}
	t := &table{}
	t.add("streams", "system", "p50 ms", "p99 ms", "added p50", "added p99", "CPU µs/event", "upstream")
	for _, n := range r.Options.Streams {
		for _, s := range r.Options.Systems {
			p50, p99 := r.streams(s, n, streamP50), r.streams(s, n, streamP99)
			row := []string{fmt.Sprint(n), s, figure(middle(p50), 3), figure(middle(p99), 3), "", "", ""}
			if s != direct {
				row[4] = ranged(spreadOf(pairwise(p50, r.streams(direct, n, streamP50), difference)), 3)
				row[5] = ranged(spreadOf(pairwise(p99, r.streams(direct, n, streamP99), difference)), 3)
				row[6] = figure(middle(r.streams(s, n, streamCPU)), 1)
			}
			upstream := middle(r.streams(s, n, func(s stream) float64 { return s.CPU[nameUpstream] }))
			t.add(append(row, figure(upstream, 1))...)
		}
	}
	t.write(w, fmt.Sprintf("Streams of %.0f events a second: age of an event on arrival", 1/r.Options.Pace.Seconds()))
}
