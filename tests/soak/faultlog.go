package main

import (
	"fmt"
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
	// lingers is how long after its end kept connections may be closed still.
	lingers time.Duration
}

// The kinds of faults.
var (
	connectorKilled    = faultKind{name: "connector killed", excuses: []symptom{offline, broken, cut, busy}}
	connectorFrozen    = faultKind{name: "connector frozen", excuses: []symptom{offline, broken, cut, busy}}
	connectorHeldUp    = faultKind{name: "connector held up"}
	connectorRestarted = faultKind{name: "connector restarted", excuses: []symptom{offline}}
	connectorReloaded  = faultKind{name: "connector reloaded"}
	connectorRotated   = faultKind{name: "connector rotated"}
	hostFrozen         = faultKind{name: "many connectors frozen", excuses: []symptom{offline, broken, cut, busy}}

	pathLossy    = faultKind{name: "path lossy"}
	pathSlow     = faultKind{name: "path slow"}
	pathRebound  = faultKind{name: "path rebound"}
	pathFlickers = faultKind{name: "path dark for a moment"}
	pathDark     = faultKind{name: "path dark", excuses: []symptom{offline, broken, cut, busy}}

	// What is running goes on. But Go's HTTP server drops a connection whose
	// request arrives just as it begins to shut down; and a kept connection whose
	// stream began before the reload is closed at the end of that, when a client
	// may send its next request: so HTTP/1.1 is.
	gatewayReloaded  = faultKind{name: "gateway reloaded", excuses: []symptom{refused, stale}, lingers: grace}
	gatewayRestarted = faultKind{name: "gateway restarted", excuses: []symptom{refused, stale, offline, busy}}
	gatewayKilled    = faultKind{name: "gateway killed", excuses: []symptom{refused, stale, offline, broken, cut, severed, busy}}

	upstreamKilled = faultKind{name: "model server killed", excuses: []symptom{broken, cut, busy}}

	// Not made, but met: see pulse.
	machineOverloaded = faultKind{name: "machine overloaded", excuses: []symptom{offline, broken, cut, busy}}

	deploymentMoved = faultKind{name: "deployment moved"}
	keyMade         = faultKind{name: "key made"}
	keyRevoked      = faultKind{name: "key revoked"} // its own requests alone: see cause
)

// A fault is one that was made. Its fields are the log's to read and write.
type fault struct {
	kind       *faultKind
	connectors []int // nil: all
	note       string
	from       time.Time
	until      time.Time // when all was seen to be well again; zero: not yet
	caused     int       // failures
}

func (f *fault) String() string {
	whom := "everything"
	if f.connectors != nil {
		whom = "connectors " + numbers(f.connectors)
	}
	return fmt.Sprintf("%s – %s %s (%s) %s", clock(f.from), clock(f.until), f.kind.name, whom, f.note)
}

// slack is how much later than a fault's end a client may notice it: its side
// of the connection has buffers, and the machine is busy.
const slack = 2 * time.Second

// excuses tells whether the fault may be the cause of a symptom that a client
// of a connector met between two times, and how long it was over then.
func (f *fault) excuses(s symptom, connector int, from, until time.Time) (over time.Duration, ok bool) {
	late := slack
	if s == stale {
		late = max(late, f.kind.lingers)
	}
	if !f.until.IsZero() {
		over = max(0, from.Sub(f.until))
	}
	if !slices.Contains(f.kind.excuses, s) || until.Before(f.from) || over > late {
		return 0, false
	}
	return over, f.connectors == nil || slices.Contains(f.connectors, connector)
}

// A faultLog holds what was done, in order of its beginning.
type faultLog struct {
	mu     sync.Mutex
	faults []*fault
}

// begin notes a fault before it is made.
func (l *faultLog) begin(kind *faultKind, connectors []int, format string, args ...any) *fault {
	return l.add(&fault{kind: kind, connectors: connectors, note: fmt.Sprintf(format, args...), from: time.Now()})
}

// add adds a fault to the log.
func (l *faultLog) add(f *fault) *fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, f)
	return f
}

// end notes that all is well again.
func (l *faultLog) end(f *fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.until = time.Now()
}

// troubled tells whether a fault of a connector is under way that takes it
// offline.
func (l *faultLog) troubled(connector int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.faults, func(f *fault) bool {
		_, ok := f.excuses(offline, connector, time.Now(), time.Now())
		return ok && f.until.IsZero() && f.connectors != nil
	})
}

// The causes that are no faults of the log.
const (
	causeModelDied   = "model server died in the answer"
	causeModelFailed = "model server answered 500"
	causeDeaf        = "client read no more"
	causeKeyRevoked  = "key revoked"
)

// cause says why a request failed; false if there is no reason known. A request
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
			if f := l.nearest(o.symptom, c, met, o.ended); f != nil {
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
func (l *faultLog) nearest(s symptom, connector int, from, until time.Time) *fault {
	var found *fault
	var least time.Duration
	for _, f := range l.faults {
		if over, ok := f.excuses(s, connector, from, until); ok && (found == nil || over <= least) {
			found, least = f, over
		}
	}
	return found
}

// around returns the faults that were in force at a time, or shortly before.
func (l *faultLog) around(from, until time.Time) []string {
	const before = 30 * time.Second
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for _, f := range l.faults {
		if !f.from.After(until) && (f.until.IsZero() || f.until.After(from.Add(-before))) {
			lines = append(lines, f.String())
		}
	}
	return lines
}

// summary is one line of the table of faults.
type summary struct {
	name      string
	count     int
	caused    int
	recovered []float64 // seconds until all was well again
}

// summaries counts the faults by kind, in order of their first.
func (l *faultLog) summaries() []summary {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []summary
	for _, f := range l.faults {
		i := slices.IndexFunc(all, func(s summary) bool { return s.name == f.kind.name })
		if i < 0 {
			i = len(all)
			all = append(all, summary{name: f.kind.name})
		}
		all[i].count++
		all[i].caused += f.caused
		if !f.until.IsZero() {
			all[i].recovered = append(all[i].recovered, f.until.Sub(f.from).Seconds())
		}
	}
	return all
}
