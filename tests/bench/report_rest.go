package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// An aim is a goal next to what was measured.
type aim struct {
	What, Goal, Measured string
	Met                  bool
}

// The numbers of clients and streams that the aims speak of.
const (
	aimClients = 16
	aimStreams = 50
)

// aims compares what there is with the goals.
func (r *results) aims() []aim {
	var list []aim
	add := func(what, goal, measured string, met bool) { list = append(list, aim{what, goal, measured, met}) }

	if rates := pairwise(r.loads(postern, aimClients, rateOf), r.loads(plain, aimClients, rateOf), ratio); len(rates) > 0 {
		s := spreadOf(rates)
		add(fmt.Sprintf("requests/s × plain Caddy, %d clients", aimClients), "≥ 0.75", ranged(s, 2), s.Median >= 0.75)
	}
	if cpu := r.loads(postern, aimClients, loadCPU); len(cpu) > 0 {
		s := spreadOf(cpu)
		add(fmt.Sprintf("CPU µs/request, gateway + connector, %d clients", aimClients), "≤ 170", ranged(s, 0), s.Median <= 170)
	}
	if p50 := r.streams(postern, aimStreams, streamP50); len(p50) > 0 {
		s := spreadOf(pairwise(p50, r.streams(direct, aimStreams, streamP50), difference))
		add(fmt.Sprintf("ms added to an event, p50, %d streams", aimStreams), "≤ 0.3", ranged(s, 3), s.Median <= 0.3)
		s = spreadOf(pairwise(r.streams(postern, aimStreams, streamP99), r.streams(direct, aimStreams, streamP99), difference))
		add(fmt.Sprintf("ms added to an event, p99, %d streams", aimStreams), "≤ 1", ranged(s, 3), s.Median <= 1)
	}
	if a, ok := r.Answers[postern]; ok {
		add("streamed answers cut short or different", "0", fmt.Sprintf("%d of %d", a.wrong(), a.Total), a.wrong() == 0)
	}
	for _, i := range r.Idle {
		if i.System == postern {
			kb := i.perTunnel(i.After.Memory.RSS, i.Before.Memory.RSS)
			add(fmt.Sprintf("KB of gateway memory (RSS) per idle tunnel, %d of them", i.Tunnels), "< 70", figure(kb, 1), kb < 70)
		}
	}
	return list
}

func (r *results) writeAims(w io.Writer) {
	aims := r.aims()
	if len(aims) == 0 {
		return
	}
	t := &table{}
	t.add("aim", "goal", "measured, median (range)", "met")
	for _, a := range aims {
		met := "yes"
		if !a.Met {
			met = "**no**"
		}
		t.add(a.What, a.Goal, a.Measured, met)
	}
	t.write(w, "Aims")
}

func (r *results) writeAnswers(w io.Writer) {
	if len(r.Answers) == 0 {
		return
	}
	t := &table{}
	t.add("system", "answers", "cut short", "different", "failed", "wrong", "answers/s")
	for _, s := range r.Options.Systems {
		if a, ok := r.Answers[s]; ok {
			t.add(s, fmt.Sprint(a.Total), fmt.Sprint(a.Cut), fmt.Sprint(a.Different), fmt.Sprint(a.Failed),
				percent(a.wrong(), a.Total), figure(float64(a.Total)/a.Took.Seconds(), 0))
		}
	}
	t.write(w, fmt.Sprintf("Streamed answers, %d clients, compared byte for byte", r.Options.AnswerClients))
}

func (r *results) writeAllocations(w io.Writer) {
	if len(r.Allocs) == 0 {
		return
	}
	t := &table{}
	t.add("system", "process", "allocations/request", "bytes/request")
	for _, s := range r.Options.Systems {
		for _, name := range []string{nameCaddy, nameGateway, nameConnector} {
			if a, ok := r.Allocs[s][name]; ok {
				t.add(s, name, figure(a.Objects, 1), figure(a.Bytes, 0))
			}
		}
	}
	t.write(w, fmt.Sprintf("Allocations, %d requests, %d clients", r.Options.Counted, accountClients))
}

// failure returns an error if an answer was wrong. A missed aim is none: how
// fast it is depends on the machine.
func (r *results) failure() error {
	var wrong []string
	for _, s := range r.Options.Systems {
		if a := r.Answers[s]; a.wrong() > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: %d of %d streamed answers were wrong, the first: %s", s, a.wrong(), a.Total, a.Example))
		}
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}
