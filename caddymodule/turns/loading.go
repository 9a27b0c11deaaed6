package turns

import (
	"cmp"
	"slices"
	"time"
)

const (
	// oneModelPlaces are the places of a deployment without a limit at a server that loads one model at a time.
	oneModelPlaces = 4
	// higherAfter is how long a model of higher priority waits before the loaded one closes for it.
	higherAfter = 5 * time.Second
	// overdueAfter is how many times swap_after a model waits before it precedes all others.
	overdueAfter = 4
)

// loading is the state of a server that loads one model at a time.
type loading struct {
	models     map[string]*model
	loaded     *model // the newest request was for it; nil: unknown
	turnNumber uint64
	turnSent   time.Time // when the first request of the turn was sent
	turnBegan  time.Time // when the head of its first answer came; zero: not yet
	turnUsed   bool      // a request of the turn was sent
	filling    bool      // it was just chosen, and may fill its places
	closing    *model    // for which the loaded one closes; nil: it is open
	stale      bool      // nothing is loaded once the running requests have ended
	runs       [3]int    // running requests by priority

	swaps    int
	swapping time.Duration // in sum

	waiting []*model // of the present decision
	open    *model   // may be sent, by the present decision
	timer   *time.Timer
}

// model is a model of a server, by its name there.
type model struct {
	name     string
	routes   int
	ended    time.Time // its last turn
	priority Priority  // the highest that waits; only in loading.waiting, as the next two
	oldest   *waiter
	since    time.Time
}

// model returns a model, which it creates if necessary.
func (s *server) model(name string) *model {
	m := s.models[name]
	if m == nil {
		m = &model{name: name}
		s.models[name] = m
	}
	return m
}

// countWaiting counts the waiting requests of a route for its model. r.first is the first one.
func (r *route) countWaiting() {
	s, m := r.server, r.model
	var oldest *waiter
	for w := range r.line.all() {
		if r.line.mayWait(&w.Request, r) {
			oldest = w
			break
		}
	}
	p := High - Priority(r.first.rank/2)
	if slices.Contains(s.waiting, m) {
		p = max(p, m.priority)
		if c := m.oldest.since.Compare(oldest.since); c < 0 || c == 0 && m.oldest.number < oldest.number {
			oldest = m.oldest
		}
	} else {
		s.waiting = append(s.waiting, m)
	}
	m.priority, m.oldest, m.since = p, oldest, oldest.since
	if m.ended.After(m.since) {
		m.since = m.ended
	}
}

// decide closes the loaded model if it is time, and sets the model that may be sent.
func (s *server) decide(a *account, now time.Time) {
	l, was, due := s.loaded, s.closing, time.Time{}
	if !slices.Contains(s.waiting, s.closing) {
		s.closing = nil
	}
	swapAfter := a.scheduler.settings.Load().swapAfter
	var next, closing *model
	for _, m := range s.waiting {
		if next == nil || s.precedes(m, next, now, swapAfter) {
			next = m
		}
		if m == l || l == nil || s.filling || s.closing != nil {
			continue
		}
		if at := s.closesAt(m, swapAfter); !at.After(now) {
			if closing == nil || s.precedes(m, closing, now, swapAfter) {
				closing = m
			}
		} else if due.IsZero() || at.Before(due) {
			due = at
		}
	}
	if closing != nil {
		s.closing = closing
	}
	switch {
	case s.running > 0 && (s.closing != nil || s.stale):
		s.open = nil
	case s.running > 0 || s.closing == nil && slices.Contains(s.waiting, l):
		s.open = l
	default:
		s.open = next
	}
	if (s.closing == nil) != (was == nil) {
		a.markOthers(s, l)
	}
	if s.closing != nil || s.running == 0 {
		due = time.Time{}
	}
	s.setTimer(a, due, now)
}

// precedes reports whether m is before n in the order of models. The loaded model has not waited.
func (s *server) precedes(m, n *model, now time.Time, swapAfter time.Duration) bool {
	wait := func(m *model) time.Duration {
		if m == s.loaded {
			return -1
		}
		return now.Sub(m.since)
	}
	v, w, priority := wait(m), wait(n), cmp.Compare(n.priority, m.priority)
	if overdue := overdueAfter * swapAfter; v >= overdue || w >= overdue {
		priority = 0
	}
	return cmp.Or(priority, cmp.Compare(w, v), cmp.Compare(m.oldest.number, n.oldest.number)) < 0
}

// closesAt returns when the loaded model closes for a waiting one, if nothing changes.
func (s *server) closesAt(m *model, swapAfter time.Duration) time.Time {
	at := m.since.Add(overdueAfter * swapAfter)
	p := Low
	if slices.Contains(s.waiting, s.loaded) {
		p = s.loaded.priority
	} else if i := slices.IndexFunc(s.runs[:], func(n int) bool { return n > 0 }); i >= 0 {
		p = High - Priority(i)
	}
	if m.priority > p {
		at = earlier(at, m.since.Add(higherAfter))
	}
	if m.priority >= p && !s.turnBegan.IsZero() {
		at = earlier(at, s.turnBegan.Add(swapAfter))
	}
	return at
}

func earlier(s, t time.Time) time.Time {
	if t.Before(s) {
		return t
	}
	return s
}

// vacant reports whether a new request may be sent on a route that has a place: if others waited for the
// server, they would have taken it.
func (r *route) vacant() bool {
	s := r.server
	return !r.oneModel || s.running == 0 || r.isLoaded()
}

// begin counts a request at a server.
func (s *server) begin(a *account, p *Place, m *model, now time.Time) {
	if s.loaded != m || s.closing != nil {
		old := s.loaded
		s.loaded, s.closing, s.turnBegan, s.turnSent, s.turnUsed, s.filling = m, nil, time.Time{}, time.Time{}, false, true
		s.turnNumber++
		if old != m {
			s.turnSent = now
		}
		if old != nil {
			old.ended = now
			a.markOthers(s, old)
		}
		a.markOthers(s, m)
	}
	p.turnNumber = s.turnNumber
	s.runs[p.rank/2]++
}

// answered begins the turn of the loaded model, if p is its first answer.
func (s *server) answered(p *Place, now time.Time) {
	s.turnUsed = s.turnUsed || p.turnNumber == s.turnNumber
	if p.turnNumber != s.turnNumber || !s.turnBegan.IsZero() {
		return
	}
	s.turnBegan = now
	if !s.turnSent.IsZero() {
		s.swaps++
		s.swapping += now.Sub(s.turnSent)
	}
}

// finish counts the end of a request. unused means that it was not sent.
func (s *server) finish(p *Place, unused bool) {
	if p.turnNumber > 0 {
		s.runs[p.rank/2]--
	}
	if p.turnNumber == s.turnNumber {
		s.turnUsed = s.turnUsed || !unused
		if s.running == 0 && !s.turnUsed {
			s.forget() // it was not loaded
		}
	}
	if s.running == 0 && s.stale {
		s.stale = false
		s.forget()
	}
}

// forget applies that nothing is loaded, at once or after the running requests.
func (s *server) forget() {
	if s.running > 0 {
		s.stale = true
		return
	}
	s.loaded, s.closing, s.turnBegan = nil, nil, time.Time{}
}

// endFilling ends the time in which new models may fill their places. It reports whether there were some.
func (c *connector) endFilling() (was bool) {
	for _, s := range c.servers {
		was = was || s.filling
		s.filling = false
	}
	return was
}

// markOthers marks the other connectors of a model's lines: the model was loaded or closed here.
func (a *account) markOthers(s *server, m *model) {
	for _, r := range s.connector.routes {
		if r.server == s && r.model == m && r.line.waiting.Len() > 0 {
			a.markAll(r.line, true)
		}
	}
}

// setTimer lets the server's timer decide at a time, or never.
func (s *server) setTimer(a *account, due, now time.Time) {
	switch {
	case s.timer != nil && due.IsZero():
		s.timer.Stop()
	case s.timer != nil:
		s.timer.Reset(due.Sub(now))
	case !due.IsZero():
		s.timer = time.AfterFunc(due.Sub(now), func() { // only decides
			a.mu.Lock()
			a.mark(s.connector)
			a.unlock()
		})
	}
}
