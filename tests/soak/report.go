package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/tests/command"
)

// A finding is a failure without a known cause, which the soak is looking for.
type finding struct {
	began, found time.Time
	story        string
}

// maxFindings is the maximum number of findings that are kept in full. One defect may cause very many.
const maxFindings = 50

// A tally counts requests and their results.
type tally struct {
	log *faultLog

	mu       sync.Mutex
	started  map[string]int // by kind of request
	results  map[string]int
	unknown  int // failures without a cause
	findings []finding
}

// Results of requests that did not fail.
const (
	fine          = "right answers"
	leftAsPlanned = "left by the client, as planned"
	omitted       = "not sent, because too many were running"
)

func newTally(log *faultLog) *tally {
	return &tally{log: log, started: map[string]int{}, results: map[string]int{}}
}

// start counts a request that is sent, or is left out because too many are running.
func (t *tally) start(r *request, sent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sent {
		t.started[r.kind()]++
	} else {
		t.results[omitted]++
	}
}

// end counts the result of a request.
func (t *tally) end(o *outcome) {
	cause, known := t.log.cause(o)
	result := map[symptom]string{well: fine, left: leftAsPlanned}[o.symptom]
	if result == "" {
		result = "failed; " + cause + ": " + string(o.symptom)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known {
		t.results[result]++
		return
	}
	t.unknown++
	t.add(finding{o.began, time.Now(), o.story()})
}

// find records a finding.
func (t *tally) find(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(finding{time.Now(), time.Now(), fmt.Sprintf(format, args...)})
}

func (t *tally) add(f finding) {
	if t.findings = append(t.findings, f); len(t.findings) <= maxFindings {
		command.Progress("WITHOUT A CAUSE: %s", f.story)
	}
}

// line returns the tally in one line.
func (t *tally) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%v, %v, %d failed without a cause", t.started, t.results, t.unknown)
}

// A report has the results of a run.
type report struct {
	o             options
	tally         *tally
	log           *faultLog
	began         time.Time // start of the first request
	samples       []sample
	before, after sample // at rest, after the first requests and after the last one
	complete      bool
}

// minSteady is the minimum length of the steady part for a verdict.
const minSteady = 5 * time.Minute

// steady returns the samples of the steady part of the run, in which growth is measured.
func (r *report) steady() []sample {
	from := r.began.Add(r.o.Length * 11 / 20)
	return r.samples[slices.IndexFunc(append(r.samples, sample{taken: from}),
		func(m sample) bool { return !m.taken.Before(from) }):]
}

// trend returns the medians of a figure in the quarters of the steady part, and whether it grows: the last is
// above the first by more than the bound, and the third by more than half of it. A single step at the end is
// not growth.
func trend(figure int, samples []sample) (quarters [4]float64, grows bool) {
	for q := range quarters {
		var values []float64
		for _, m := range samples[len(samples)*q/4 : len(samples)*(q+1)/4] {
			values = append(values, m.figures[figure])
		}
		quarters[q] = command.Median(values)
	}
	allowed := figures[figure].steady.limit(quarters[0])
	return quarters, judged(samples) && quarters[3]-quarters[0] > allowed && quarters[2]-quarters[0] > allowed/2
}

// judged reports whether the samples are enough for a verdict.
func judged(samples []sample) bool {
	return len(samples) >= 8 && samples[len(samples)-1].taken.Sub(samples[0].taken) >= minSteady
}

// growth describes the figures that grow in the steady part, and those that have grown between the two samples
// at rest. Both samples have the same connectors online, so a difference is what requests have left behind.
func (r *report) growth() (grows []string) {
	moved := float64(max(0, r.after.webSocket-r.before.webSocket))
	for i, f := range figures {
		if quarters, yes := trend(i, r.steady()); yes {
			grows = append(grows, fmt.Sprintf("%s: %.0f in the quarters of the steady part", f.name, quarters))
		}
		before, after := r.before.figures[i], r.after.figures[i]
		allowed := f.atRest.floor + f.atRest.share*before + f.perWebSocket*moved
		if r.complete && after-before > allowed {
			grows = append(grows, fmt.Sprintf("%s: %.0f at rest after the first requests, %.0f after the last; %.0f more "+
				"are allowed", f.name, before, after, allowed))
		}
	}
	return grows
}

// failure returns an error if the run has failed.
func (r *report) failure() error {
	grows := r.growth()
	if len(r.tally.findings) == 0 && len(grows) == 0 && r.complete {
		return nil
	}
	return fmt.Errorf("%d findings without a cause; growth: %q; complete: %t", len(r.tally.findings), grows,
		r.complete)
}

// write writes the report as Markdown.
func (r *report) write(w io.Writer) {
	fmt.Fprintf(w, "## Soak: %d connectors, %g requests/s, %v, seed %d\n\n", r.o.Connectors,
		r.o.Rate, r.o.Length, r.o.Seed)
	if !r.complete {
		fmt.Fprint(w, "The run is **incomplete**.\n\n")
	}
	for _, list := range []struct {
		title  string
		counts map[string]int
	}{{"Requests", r.tally.started}, {"Results", r.tally.results}} {
		t := &command.Table{Title: list.title}
		t.Add("", "times")
		for _, name := range slices.Sorted(maps.Keys(list.counts)) {
			t.Add(name, fmt.Sprint(list.counts[name]))
		}
		t.Write(w)
	}
	r.writeFaults(w)
	r.writeFigures(w)
	fmt.Fprintf(w, "### Without a cause: %d\n\n", len(r.tally.findings))
	for i, f := range r.tally.findings[:min(maxFindings, len(r.tally.findings))] {
		fmt.Fprintf(w, "%d. %s %s\n   - %s\n", i+1, clock(f.found), f.story,
			strings.Join(r.log.around(f.began, f.found), "\n   - "))
	}
}

// writeFaults prints the faults by kind, in the order of their first occurrence.
func (r *report) writeFaults(w io.Writer) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	byKind := map[string][]*fault{}
	var names []string
	for _, f := range r.log.faults {
		if byKind[f.kind.name] == nil {
			names = append(names, f.kind.name)
		}
		byKind[f.kind.name] = append(byKind[f.kind.name], f)
	}
	t := &command.Table{Title: "Faults"}
	t.Add("fault", "times", "failed requests", "recovered after s, median", "maximum")
	for _, name := range names {
		caused := 0
		var recovered []float64
		for _, f := range byKind[name] {
			caused += f.caused
			if !f.until.IsZero() {
				recovered = append(recovered, f.until.Sub(f.from).Seconds())
			}
		}
		slices.Sort(recovered)
		t.Add(name, fmt.Sprint(len(byKind[name])), fmt.Sprint(caused),
			fmt.Sprintf("%.1f", command.Median(recovered)), fmt.Sprintf("%.1f", command.Percentile(recovered, 1)))
	}
	t.Write(w)
	fmt.Fprintf(w, "The time until recovery includes the fault itself, and %v in which the system must stay healthy.\n\n",
		settle)
}

func (r *report) writeFigures(w io.Writer) {
	samples := r.steady()
	t := &command.Table{Title: fmt.Sprintf("Memory, goroutines, files; the steady part has %d samples", len(samples))}
	t.Add("", "at rest before", "quarters of the steady part", "at rest after", "grows")
	for i, f := range figures {
		quarters, grows := trend(i, samples)
		verdict := map[bool]string{true: "**yes**", false: "no"}[grows]
		if !judged(samples) {
			verdict = "too short for a verdict"
		}
		t.Add(f.name, fmt.Sprintf("%.0f", r.before.figures[i]), fmt.Sprintf("%.0f", quarters),
			fmt.Sprintf("%.0f", r.after.figures[i]), verdict)
	}
	t.Write(w)
	for _, grown := range r.growth() {
		fmt.Fprintf(w, "**%s**\n\n", grown)
	}
}
