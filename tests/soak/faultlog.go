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

// A faultKind is something that is done to a part of the system, and what of
// it clients may notice. What is in no list must go unnoticed.
type faultKind struct {
	name    string
	excuses []symptom
	there   []symptom // what clients of the edge that it hits may notice, too
	mends   bool      // all has to be well again afterwards, see mend
	make    maker
	// lingers is how long after its end kept connections may be closed still.
	lingers time.Duration
}

// A maker makes one fault, and ends it. It calls begin just before, with the
// connectors that it hits, nil for all. Its error is one of the soak itself; what
// the product does wrong is a finding.
type maker func(ctx context.Context, s *system, random *rand.Rand, begin beginning) error

// A beginning notes that a fault begins at an edge, nil for none of several, with connectors.
type beginning func(at *edge, connectors []int, format string, args ...any)

// A fault is one that was made. Its fields are the log's to read and write.
type fault struct {
	kind       *faultKind
	edge       *edge // that it hits; nil: none in particular
	connectors []int // nil: all
	note       string
	from       time.Time
	until      time.Time // when all was seen to be well again; zero: not yet
	caused     int       // failures
}

func (f *fault) String() string {
	whom := fmt.Sprint(f.connectors)
	if n := len(f.connectors); n > 6 {
		whom = fmt.Sprintf("%v and %d more", f.connectors[:6], n-6)
	}
	return fmt.Sprintf("%s – %s %s (connectors %s) %s", clock(f.from), clock(f.until), f.kind.name, whom, f.note)
}

// slack is how much later than a fault's end a client may notice it: its side
// of the connection has buffers, and the machine is busy.
const slack = 2 * time.Second

// excuses reports whether the fault may be the cause of a symptom that a client
// of a connector met at an edge between two times, and how long it was over then.
func (f *fault) excuses(s symptom, at *edge, connector int, from, until time.Time) (over time.Duration, ok bool) {
	late := slack
	if s == stale {
		late = max(late, f.kind.lingers)
	}
	if !f.until.IsZero() {
		over = max(0, from.Sub(f.until))
	}
	noticed := slices.Contains(f.kind.excuses, s) || at != nil && at == f.edge && slices.Contains(f.kind.there, s)
	return over, noticed && !until.Before(f.from) && over <= late &&
		(f.connectors == nil || slices.Contains(f.connectors, connector))
}

// A faultLog holds what was done, in order of its beginning.
type faultLog struct {
	mu     sync.Mutex
	faults []*fault
}

// begin notes a fault before it is made.
func (l *faultLog) begin(kind *faultKind, from time.Time, at *edge, connectors []int, note string) *fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &fault{kind: kind, edge: at, connectors: connectors, note: note, from: from}
	l.faults = append(l.faults, f)
	return f
}

// end notes that all is well again.
func (l *faultLog) end(f *fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.until = time.Now()
}

// troubled reports whether a fault of a connector is under way that takes it
// offline.
func (l *faultLog) troubled(connector int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.faults, func(f *fault) bool {
		_, ok := f.excuses(offline, nil, connector, time.Now(), time.Now())
		return ok && f.until.IsZero() && f.connectors != nil
	})
}

// The causes that are no faults of the log.
const (
	causeModelDied   = "model server died in the answer"
	causeModelFailed = "model server answered 500"
	causeDeaf        = "client read no longer"
	causeKeyRevoked  = "key revoked"
)

// cause returns why a request failed; false if there is no reason known. A request
// that was to fail and did not is a failure, too.
func (l *faultLog) cause(o *outcome) (string, bool) {
	switch {
	case o.symptom == well && (o.End != play.Whole || o.habit == deaf):
		o.detail = "this request was to fail, and did not"
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

// blame looks for a fault that excuses the symptom. A deployment is offline
// only if each of its connectors has such a fault.
func (l *faultLog) blame(o *outcome) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	met := o.ended
	if o.habit == pauses { // it may have been there while the client did not read
		met = met.Add(-pauseTime)
	}
	for _, home := range o.homes {
		var found []*fault
		for _, c := range home {
			if f := l.nearest(o.symptom, o.edge, c, met, o.ended); f != nil {
				found = append(found, f)
			}
		}
		if len(found) > 0 && (o.symptom != offline || len(found) == len(home)) {
			found[0].caused++
			return found[0].kind.name, true
		}
	}
	return "", false
}

// nearest returns the fault that excuses a symptom and was over for the shortest
// time, if at all; of several, the one that began last. The lock must be held.
func (l *faultLog) nearest(s symptom, at *edge, connector int, from, until time.Time) (found *fault) {
	var least time.Duration
	for _, f := range l.faults {
		if over, ok := f.excuses(s, at, connector, from, until); ok && (found == nil || over <= least) {
			found, least = f, over
		}
	}
	return found
}

// around returns the faults that were in force at a time, or shortly before.
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
