package turns

import (
	"container/list"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
)

// account returns an account, and locks it.
func (s *Scheduler) account(name string) *account {
	for {
		s.mu.RLock()
		a := s.accounts[name]
		s.mu.RUnlock()
		if a == nil {
			s.mu.Lock()
			if a = s.accounts[name]; a == nil {
				a = &account{
					scheduler: s, name: name, connectors: make(map[string]*connector), lines: make(map[string]*line),
					shares: make(map[party]*shares),
				}
				s.accounts[name] = a
			}
			s.mu.Unlock()
		}
		if a.mu.Lock(); !a.gone {
			return a
		}
		a.mu.Unlock()
	}
}

// unlock decides for the marked connectors, and unlocks the account.
func (a *account) unlock() {
	a.decide()
	if !a.gone && len(a.connectors)+len(a.lines) == 0 {
		a.gone = true
		a.scheduler.mu.Lock()
		delete(a.scheduler.accounts, a.name)
		a.scheduler.mu.Unlock()
	}
	a.mu.Unlock()
}

// mark lets unlock decide for a connector.
func (a *account) mark(c *connector) {
	if !c.marked {
		c.marked = true
		a.marked = append(a.marked, c)
	}
}

// markAll marks the connectors of a line where something may change for its requests: all of them, or only
// those that have servers which load one model at a time.
func (a *account) markAll(l *line, oneModel bool) {
	if oneModel && l.oneModel == 0 {
		return
	}
	for _, r := range l.routes {
		if r.server != nil && (!oneModel || r.server.OneModel) {
			a.mark(r.connector)
		}
	}
}

// connector returns a connector, which it creates if necessary.
func (a *account) connector(id string) *connector {
	c := a.connectors[id]
	if c == nil {
		c = &connector{account: a, servers: make(map[string]*server)}
		c.ID = id
		a.connectors[id] = c
	}
	return c
}

// SetConnector reports a connector that is online, or has changed.
func (s *Scheduler) SetConnector(facts Connector) {
	a := s.account(facts.Account)
	defer a.unlock()
	a.apply(a.connector(facts.ID), facts, true)
}

// RemoveConnector reports that a connector has gone offline at this moment.
func (s *Scheduler) RemoveConnector(account, id string) {
	a := s.account(account)
	defer a.unlock()
	if c := a.connectors[id]; c != nil && c.online {
		a.apply(c, Connector{ID: id}, false)
	}
}

// apply applies the facts of a connector to its servers and routes.
func (a *account) apply(c *connector, facts Connector, online bool) {
	c.Connector, c.online = facts, online
	for _, s := range c.servers {
		s.known = slices.ContainsFunc(facts.Servers, func(f Server) bool { return f.Name == s.Name })
		if !s.known {
			s.forget()
		}
	}
	c.oneModel = slices.ContainsFunc(facts.Servers, func(f Server) bool { return f.OneModel })
	for _, f := range facts.Servers {
		s := c.servers[f.Name]
		if s == nil {
			s = &server{connector: c, byLine: make(map[*line]int)}
			s.models = make(map[string]*model)
			c.servers[f.Name] = s
		}
		if f.Down || f.OneModel && !s.OneModel {
			s.forget()
		}
		s.Server, s.known = f, true
	}
	for _, r := range slices.Clone(c.routes) {
		l, was, online := r.line, *r, r.line.online
		if a.lines[l.name] != l {
			continue // just dropped
		}
		r.resolve()
		if (l.online == 0) != (online == 0) || was.oneModel != r.oneModel {
			a.boundsChanged(l)
		}
		if was.server != nil && (r.server != was.server || r.model != was.model || r.doubtful && !was.doubtful) {
			a.markAll(l, false) // others may serve its requests now
		}
		if r.server == nil || online == 0 {
			a.endUnservable(l)
		}
		a.drop(l)
	}
	a.changed(c)
}

// resolve applies the facts of a route's connector.
func (r *route) resolve() {
	c, l := r.connector, r.line
	r.detach()
	if r.online = c.online; !r.online {
		return
	}
	l.online++
	name, model, err := c.Resolve(l.name, l.Upstream, l.Model)
	s := c.servers[name]
	if err == nil && (s == nil || !s.known) {
		err = fmt.Errorf("connector %q has no upstream %q", c.ID, name)
	}
	if r.err = err; err != nil {
		return
	}
	r.server, r.model = s, s.model(model)
	r.model.routes++
	r.doubtful = s.Down || s.Lacks != nil && s.Lacks(model)
	if r.oneModel = s.OneModel; r.oneModel {
		l.oneModel++
	}
	l.usable++
}

// detach removes what a route knows of its connector.
func (r *route) detach() {
	l := r.line
	l.version++
	if r.server != nil {
		l.usable--
		r.model.routes--
	}
	if r.oneModel {
		l.oneModel--
	}
	if r.online {
		if l.online--; l.online == 0 {
			l.lost = time.Now()
		}
	}
	r.server, r.model, r.err, r.online, r.doubtful, r.oneModel = nil, nil, nil, false, false, false
}

// boundsChanged applies the bounds of a line's waiting requests again.
func (a *account) boundsChanged(l *line) {
	now := time.Now()
	for w := range l.all() {
		left, _ := w.left(now)
		w.timer.Reset(left)
	}
}

// endUnservable ends the waiting requests of a line that no server can serve.
func (a *account) endUnservable(l *line) {
	for w := range l.all() {
		if err := l.fault(&w.Request); err != nil {
			a.end(w, err)
		}
	}
}

// fault returns why no server can serve a request, or nil if it may run or wait.
func (l *line) fault(q *Request) (err error) {
	if l.removed {
		return ErrRemoved
	}
	if l.online == 0 || l.usable > 0 && len(q.Refused)+len(q.Unfit) == 0 {
		return nil
	}
	for _, r := range l.routes {
		switch {
		case !r.connector.online:
		case r.server == nil:
			if err == nil {
				err = r.err
			}
		case r.allows(q):
			return nil
		case q.Unfit[r.connector.ID]:
			if err != ErrRefused {
				err = ErrUnfit
			}
		default:
			err = ErrRefused
		}
	}
	return err
}

// line returns the line of a deployment, which it creates if necessary. The caller must call release.
func (a *account) line(name string) *line {
	l := a.lines[name]
	if l == nil {
		l = &line{name: name}
		a.lines[name] = l
	}
	l.uses++
	return l
}

// release ends a use of a line.
func (a *account) release(l *line) {
	l.uses--
	a.drop(l)
}

// drop drops a line without requests whose deployment was removed, or has no connector online.
func (a *account) drop(l *line) {
	if l.uses+l.waiting.Len() > 0 || !l.removed && l.online > 0 {
		return
	}
	delete(a.lines, l.name)
	for _, c := range l.detach() {
		a.changed(c)
	}
}

// detach removes the routes of a line, and returns their connectors.
func (l *line) detach() (before []*connector) {
	for _, r := range l.routes {
		r.detach()
		c := r.connector
		i := slices.Index(c.routes, r)
		c.routes = slices.Delete(c.routes, i, i+1)
		before = append(before, c)
	}
	l.routes = nil
	return before
}

// changed marks a connector, and drops what is unused: models, servers, and the connector itself.
func (a *account) changed(c *connector) {
	a.mark(c)
	for name, s := range c.servers {
		maps.DeleteFunc(s.models, func(_ string, m *model) bool {
			return m.routes == 0 && m != s.loaded
		})
		if !s.known && s.running == 0 {
			delete(c.servers, name)
		}
	}
	if c.online || c.running+len(c.routes) > 0 {
		return
	}
	delete(a.connectors, c.ID)
	for _, s := range a.shares {
		delete(s.at, c)
	}
}

// DeploymentChanged looks up a deployment that was changed or removed.
func (s *Scheduler) DeploymentChanged(account, name string) {
	a := s.account(account)
	defer a.unlock()
	if l := a.lines[name]; l != nil {
		l.uses++
		a.lookup(l)
		a.release(l)
	}
}

// lookup reads a line's deployment without the lock, and applies it unless a later lookup was applied.
func (a *account) lookup(l *line) {
	l.lookups++
	asked := l.lookups
	d, ok := a.unlocked(l.name)
	if l.applied > asked {
		return
	}
	before := l.detach()
	l.applied, l.Deployment, l.removed = asked, d, !ok
	for i, id := range d.Connectors {
		r := &route{line: l, connector: a.connector(id), position: i}
		l.routes = append(l.routes, r)
		r.connector.routes = append(r.connector.routes, r)
		r.resolve()
	}
	if d.LastOnline.After(l.lost) {
		l.lost = d.LastOnline
	}
	for _, c := range before {
		a.changed(c)
	}
	a.boundsChanged(l)
	a.endUnservable(l)
	a.markAll(l, false)
}

// unlocked looks up a deployment without the lock.
func (a *account) unlocked(name string) (Deployment, bool) {
	a.unlock()
	defer a.mu.Lock()
	return a.scheduler.lookup(a.name, name)
}

// all iterates over the waiting requests. They may end meanwhile.
func (l *line) all() iter.Seq[*waiter] {
	return func(yield func(*waiter) bool) {
		for e, next := l.waiting.Front(), (*list.Element)(nil); e != nil; e = next {
			if next = e.Next(); !yield(e.Value.(*waiter)) {
				return
			}
		}
	}
}
