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

// A finding is something that went wrong without a cause: what the soak is for.
type finding struct {
	began, at time.Time
	story     string
}

// maxFindings is how many are shown in full: one defect may break everything.
const maxFindings = 50

// A tally counts what became of requests.
type tally struct {
	log *faultLog

	mu       sync.Mutex
	started  map[string]int // by kind of request
	became   map[string]int
	unknown  int // failures without a cause
	findings []finding
}

// What became of requests that did not fail.
const (
	fine = "right answers"
	gone = "left by the client, as it wanted"
	held = "not sent, for too many were running"
)

func newTally(log *faultLog) *tally {
	return &tally{log: log, started: map[string]int{}, became: map[string]int{}}
}

// start counts a request that is sent, or could not be.
func (t *tally) start(r *request, sent bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if sent {
		t.started[r.kind()]++
	} else {
		t.became[held]++
	}
}

// end counts what became of a request.
func (t *tally) end(o *outcome) {
	cause, known := t.log.cause(o)
	became := map[symptom]string{well: fine, left: gone}[o.symptom]
	if became == "" {
		became = "failed; " + cause + ": " + string(o.symptom)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known {
		t.became[became]++
		return
	}
	t.unknown++
	t.add(finding{o.began, time.Now(), o.story()})
}

// find notes a finding.
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

// line is the tally in one line.
func (t *tally) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%v, %v, %d failed without a cause", t.started, t.became, t.unknown)
}

// A report is what a run found.
type report struct {
	o             options
	tally         *tally
	log           *faultLog
	began         time.Time // of the first request
	samples       []sample
	before, after sample // at rest, after the first requests and after the last one
	complete      bool
}

// minSteady is how long the steady part must be for a verdict.
const minSteady = 5 * time.Minute

// steady returns the samples of the steady part, in which growth would show.
func (r *report) steady() []sample {
	from := r.began.Add(r.o.Length * 11 / 20)
	return r.samples[slices.IndexFunc(append(r.samples, sample{at: from}),
		func(m sample) bool { return !m.at.Before(from) }):]
}

// trend returns the medians of a figure in the quarters of the steady part, and
// whether it grows: the last one is above the first by more than the bound, and the
// third by more than half of that, which a single step at the end does not reach.
func trend(figure int, samples []sample) (quarters [4]float64, grows bool) {
	for q := range quarters {
		var values []float64
		for _, m := range samples[len(samples)*q/4 : len(samples)*(q+1)/4] {
			values = append(values, m.figures[figure])
		}
		quarters[q] = command.Median(values)
	}
	allowed := figures[figure].steady.of(quarters[0])
	return quarters, judged(samples) && quarters[3]-quarters[0] > allowed && quarters[2]-quarters[0] > allowed/2
}

// judged reports whether the samples are enough for a verdict.
func judged(samples []sample) bool {
	return len(samples) >= 8 && samples[len(samples)-1].at.Sub(samples[0].at) >= minSteady
}

// growth names what grows, and what has grown between the two samples at rest, with
// the same connectors online: there would be more of what each request left behind.
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
				"would pass", f.name, before, after, allowed))
		}
	}
	return grows
}

// failure returns why the run failed, if it did.
func (r *report) failure() error {
	grows := r.growth()
	if len(r.tally.findings) == 0 && len(grows) == 0 && r.complete {
		return nil
	}
	return fmt.Errorf("%d findings without a cause; growth: %q; the run was finished: %t", len(r.tally.findings), grows,
		r.complete)
}

// write writes the report as Markdown.
func (r *report) write(w io.Writer) {
	fmt.Fprintf(w, "## Soak: %d gateways, %d connectors, %g requests/s, %v, seed %d\n\n", r.o.Edges, r.o.Connectors,
		r.o.Rate, r.o.Length, r.o.Seed)
	if !r.complete {
		fmt.Fprint(w, "The run was **not finished**.\n\n")
	}
	for _, list := range []struct {
		title  string
		counts map[string]int
	}{{"Requests", r.tally.started}, {"What became of them", r.tally.became}} {
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
		fmt.Fprintf(w, "%d. %s %s\n   - %s\n", i+1, clock(f.at), f.story,
			strings.Join(r.log.around(f.began, f.at), "\n   - "))
	}
}

// writeFaults prints the faults by kind, in order of their first.
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
	t.Add("fault", "times", "requests that failed by it", "all well again after s, median", "at most")
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
	fmt.Fprintf(w, "A fault's time includes that of the fault itself, and %v in which all must stay well.\n\n", settle)
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
