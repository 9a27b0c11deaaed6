//go:build linux

package main

import (
	"fmt"
	"io"

	"github.com/postern-dev/postern/tests/command"
)

// cpu returns the CPU time of all processes from gateway to model server, in microseconds.
func (f figures) cpu() float64 {
	return f.CPU[nameCaddy] + f.CPU[nameGateway] + f.CPU[nameConnector]
}

func ratio(a, b float64) float64      { return a / b }
func difference(a, b float64) float64 { return a - b }

// writeStreams prints the CPU time of an event of a paced stream, and its delay compared with direct.
func (r *results) writeStreams(w io.Writer) {
	t := &command.Table{Title: fmt.Sprintf("Streams of %.0f events per second; targets for postern, × caddy: "+
		"CPU of one ≤ 4.3, of 50 ≤ 2.4; added with 50: p50 ≤ 2.4, p99 ≤ 2.3", 1/r.Options.Pace.Seconds())}
	t.Add("in parallel", "system", "events/s", "age p50 ms", "p99 ms", "added p50 ms", "added p99 ms", "p50 × caddy",
		"p99 × caddy", "CPU µs each", "CPU × caddy", "CPU × postern", "of which gateway", "connector", "upstream")
	for _, n := range r.Options.Streams {
		for _, s := range r.Options.Systems {
			if rounds := r.Rounds[point{partStreams, s, n}]; len(rounds) > 0 {
				t.Add(r.streamsRow(s, n)...)
			}
		}
	}
	t.Write(w)
}

// streamsRow returns the row of a system with n streams.
func (r *results) streamsRow(s string, n int) []string {
	all := func(system string, value func(figures) float64) []float64 {
		return each(r.Rounds[point{partStreams, system, n}], value)
	}
	median := func(value func(figures) float64, decimals int) string {
		return figure(command.Median(all(s, value)), decimals)
	}
	p50, p99 := func(f figures) float64 { return f.P50 }, func(f figures) float64 { return f.P99 }
	added := func(system string, value func(figures) float64) []float64 {
		return pairwise(all(system, value), all(direct, value), difference)
	}
	row := []string{fmt.Sprint(n), s, median(func(f figures) float64 { return f.Rate }, 0), median(p50, 3), median(p99, 3)}
	if s == direct {
		row = append(row, "", "", "", "", "", "", "")
	} else {
		row = append(row, ranged(added(s, p50), 3), ranged(added(s, p99), 3))
		against := func(other string, a, b []float64) string {
			if s == other || !r.Options.has(other) {
				return ""
			}
			return ranged(pairwise(a, b, ratio), 2)
		}
		row = append(row, against(plain, added(s, p50), added(plain, p50)), against(plain, added(s, p99), added(plain, p99)),
			median(figures.cpu, 1), against(plain, all(s, figures.cpu), all(plain, figures.cpu)))
		if s == plain {
			row = append(row, "")
		} else {
			row = append(row, against(postern, all(s, figures.cpu), all(postern, figures.cpu)))
		}
	}
	for _, name := range []string{nameGateway, nameConnector, nameUpstream} {
		text := ""
		if v := command.Median(all(s, func(f figures) float64 { return f.CPU[name] })); v != 0 {
			text = figure(v, 1)
		}
		row = append(row, text)
	}
	return row
}
