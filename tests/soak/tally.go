package main

import (
	"fmt"
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
	log       []string // what the processes said meanwhile
}

// maxFindings is how many are told in full: one defect may break everything.
const maxFindings = 50

// A tally counts what became of requests.
type tally struct {
	log *faultLog
	// lines returns what the gateway, and these connectors, logged.
	lines func(from, until time.Time, connectors []int) []string

	mu       sync.Mutex
	started  map[string]int // by kind of request
	total    int
	fine     int
	left     int
	held     int            // not sent: too many were running
	causes   map[string]int // "cause: symptom"
	unknown  int            // failures without a cause
	findings []finding
}

func newTally(log *faultLog, lines func(from, until time.Time, connectors []int) []string) *tally {
	return &tally{log: log, lines: lines, started: map[string]int{}, causes: map[string]int{}}
}

// start counts a request that is sent.
func (t *tally) start(r *request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := string(r.dialect)
	if r.streamed {
		name += " streamed"
	}
	t.started[name]++
	t.total++
}

// hold counts a request that was not sent.
func (t *tally) hold() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held++
}

// end counts what became of a request.
func (t *tally) end(o *outcome) {
	cause, known := t.log.cause(o)
	if !known {
		t.findSince(o.began, slices.Concat(o.homes...), o.story())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !known:
		t.unknown++
	case o.symptom == well:
		t.fine++
	case o.symptom == left:
		t.left++
	default:
		t.causes[cause+": "+string(o.symptom)]++
	}
}

// find notes a finding.
func (t *tally) find(format string, args ...any) {
	t.findSince(time.Now(), nil, fmt.Sprintf(format, args...))
}

// findSince notes a finding whose story began earlier, and is one of some
// connectors.
func (t *tally) findSince(began time.Time, connectors []int, story string) {
	f := finding{began: began, at: time.Now(), story: story}
	f.log = t.lines(began, f.at, connectors)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.findings = append(t.findings, f); len(t.findings) <= maxFindings {
		command.Progress("WITHOUT A CAUSE: %s", f.story)
	}
}

// failures is how many requests failed with a cause. The lock must be held.
func (t *tally) failures() (n int) {
	for _, count := range t.causes {
		n += count
	}
	return n
}

// line is the tally in one line.
func (t *tally) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var kinds, causes []string
	for _, d := range dialects {
		kinds = append(kinds, fmt.Sprintf("%s %d+%d", d, t.started[string(d)], t.started[string(d)+" streamed"]))
	}
	for _, c := range slices.Sorted(maps.Keys(t.causes)) {
		causes = append(causes, fmt.Sprintf("%s %d", c, t.causes[c]))
	}
	return fmt.Sprintf("%d requests (%s; whole+streamed) · %d ok · %d left by the client · %d failed with a cause (%s) · %d without",
		t.total, strings.Join(kinds, ", "), t.fine, t.left, t.failures(), strings.Join(causes, ", "), t.unknown)
}
