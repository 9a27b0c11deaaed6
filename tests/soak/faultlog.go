package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/tests/upstream/play"
)

// A faultKind is a kind of fault, with the symptoms that it may cause. Clients must not notice any other
// symptom.
type faultKind struct {
	name     string
	excuses  []symptom
	recovery bool // wait for recovery afterwards, see awaitRecovery
	make     maker
	// lingers is the time after the fault in which idle connections may still be closed.
	lingers time.Duration
}

// A maker causes one fault and ends it. Just before, it calls begin with the affected connectors, nil for all.
// It returns an error only if the soak itself fails; a failure of the product is a finding.
type maker func(ctx context.Context, s *system, random *rand.Rand, begin beginning) error

// A beginning records the start of a fault, with the affected connectors.
type beginning func(connectors []int, format string, args ...any)

// A fault is a fault of this run. The log's lock protects its fields.
type fault struct {
	kind       *faultKind
	connectors []int // nil: all
	note       string
	from       time.Time
	until      time.Time // when recovery was complete; zero: not yet
	caused     int       // number of failed requests
}

func (f *fault) String() string {
	whom := fmt.Sprint(f.connectors)
	if n := len(f.connectors); n > 6 {
		whom = fmt.Sprintf("%v and %d more", f.connectors[:6], n-6)
	}
	return fmt.Sprintf("%s – %s %s (connectors %s) %s", clock(f.from), clock(f.until), f.kind.name, whom, f.note)
}

// slack is the time after a fault's end in which a client may still notice it, because of buffers and a busy
// machine.
const slack = 2 * time.Second

// excuses reports whether the fault may have caused a symptom that a client of a connector noticed between two
// times. It also returns the time since the fault's end.
func (f *fault) excuses(s symptom, connector int, from, until time.Time) (over time.Duration, ok bool) {
	late := slack
	if s == stale {
		late = max(late, f.kind.lingers)
	}
	if !f.until.IsZero() {
		over = max(0, from.Sub(f.until))
	}
	return over, slices.Contains(f.kind.excuses, s) && !until.Before(f.from) && over <= late &&
		(f.connectors == nil || slices.Contains(f.connectors, connector))
}

// A faultLog has all faults, ordered by their start.
type faultLog struct {
	mu     sync.Mutex
	faults []*fault
}

// begin records a fault before it is caused.
func (l *faultLog) begin(kind *faultKind, from time.Time, connectors []int, note string) *fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &fault{kind: kind, connectors: connectors, note: note, from: from}
	l.faults = append(l.faults, f)
	return f
}

// end records that the system has recovered from a fault.
func (l *faultLog) end(f *fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.until = time.Now()
}

// troubled reports whether a current fault takes the connector offline.
func (l *faultLog) troubled(connector int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.faults, func(f *fault) bool {
		_, ok := f.excuses(offline, connector, time.Now(), time.Now())
		return ok && f.until.IsZero() && f.connectors != nil
	})
}

// Causes that are not faults.
const (
	causeModelDied   = "model server died within the answer"
	causeModelFailed = "model server answered 500"
	causeDeaf        = "client stopped reading"
	causeKeyRevoked  = "key revoked"
)

// cause returns the reason for a failure, or false if it is unknown. A request that should have failed and did
// not is a failure, too.
func (l *faultLog) cause(o *outcome) (string, bool) {
	switch {
	case o.symptom == well && (o.End != play.Whole || o.habit == deaf):
		o.detail = "this request should have failed"
		return "", false
	case o.symptom == well || o.symptom == left:
		return "", true
	case o.End == play.Dies && (o.symptom == broken || o.symptom == cut):
		return causeModelDied, true
	case o.End == play.Fails && (o.symptom == failed || o.symptom == broken || o.symptom == cut):
		return causeModelFailed, true
	case o.habit == deaf && (o.symptom == severed || o.symptom == cut):
		return causeDeaf, true
	case o.symptom == unauthorized && o.key.revokedBy(o.ended):
		return causeKeyRevoked, true
	}
	return l.blame(o)
}

// blame finds a fault that excuses the symptom. A deployment may be offline only if each of its connectors has
// such a fault.
func (l *faultLog) blame(o *outcome) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	met := o.ended
	if o.habit == pauses { // the symptom may have occurred during the client's pause
		met = met.Add(-pauseTime)
	}
	for _, route := range o.routes {
		var found []*fault
		for _, c := range route {
			if f := l.nearest(o.symptom, c, met, o.ended); f != nil {
				found = append(found, f)
			}
		}
		if len(found) > 0 && (o.symptom != offline || len(found) == len(route)) {
			found[0].caused++
			return found[0].kind.name, true
		}
	}
	return "", false
}

// nearest returns the fault that excuses a symptom and has been over for the shortest time. Of several, it
// returns the one that began last. The caller must hold the lock.
func (l *faultLog) nearest(s symptom, connector int, from, until time.Time) (found *fault) {
	var shortest time.Duration
	for _, f := range l.faults {
		if over, ok := f.excuses(s, connector, from, until); ok && (found == nil || over <= shortest) {
			found, shortest = f, over
		}
	}
	return found
}

// around returns the faults during a period and shortly before it.
func (l *faultLog) around(from, until time.Time) (lines []string) {
	const before = 30 * time.Second
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.faults {
		if !f.from.After(until) && (f.until.IsZero() || f.until.After(from.Add(-before))) {
			lines = append(lines, f.String())
		}
	}
	return lines
}
