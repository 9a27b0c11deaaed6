package turns

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// oracle is a second scheduler, which scans everything. It does not choose between connectors that may decide in
// any order: grant checks each decision of the other one, and idle that none was left out.
type oracle struct {
	swapAfter time.Duration
	online    map[string]Connector
	deps      map[string]Deployment
	waiting   []*asked
	running   []*asked
	servers   map[string]*loads
	stamps    map[string]int // turns in lines, and when parties came and were served
	clock     int
}

// asked is a request.
type asked struct {
	*Request
	name             string
	rank, number     int
	since, rises     time.Time
	way              way
	turn, clock      int
	ownerWas, keyWas int
	ownerKey, keyKey string
}

// loads is the state of a server that loads one model at a time.
type loads struct {
	loaded, closing     string
	turn                time.Time
	number              int
	filling, used, lost bool
	ended               map[string]time.Time
}

// way is a server of a request.
type way struct {
	connector, server, model string
	position                 int
	oneModel, doubtful       bool
}

func newOracle() *oracle {
	return &oracle{
		online: map[string]Connector{}, deps: map[string]Deployment{}, servers: map[string]*loads{}, stamps: map[string]int{},
	}
}

func (o *oracle) server(w way) *loads {
	s := o.servers[w.connector+"/"+w.server]
	if s == nil {
		s = &loads{ended: map[string]time.Time{}}
		o.servers[w.connector+"/"+w.server] = s
	}
	return s
}

// ways returns the servers of a deployment.
func (o *oracle) ways(deployment string) (list []way) {
	d := o.deps[deployment]
	for i, id := range d.Connectors {
		c, ok := o.online[id]
		if !ok {
			continue
		}
		name, model, err := c.Resolve(deployment, d.Upstream, d.Model)
		if j := slices.IndexFunc(c.Servers, func(s Server) bool { return s.Name == name }); err == nil && j >= 0 {
			list = append(list, way{id, name, model, i, c.Servers[j].OneModel, c.Servers[j].Down})
		}
	}
	return list
}

func (o *oracle) home(w way) bool {
	s := o.server(w)
	return w.oneModel && s.loaded == w.model && s.closing == "" && !s.lost
}

// may returns the servers for whose places a request may wait.
func (o *oracle) may(q *Request) (list []way) {
	list = slices.DeleteFunc(o.ways(q.Deployment), func(w way) bool {
		return slices.Contains(q.Refused, w.connector) || q.Unfit[w.connector]
	})
	if slices.ContainsFunc(list, func(w way) bool { return !w.doubtful }) {
		list = slices.DeleteFunc(list, func(w way) bool { return w.doubtful })
	}
	if slices.ContainsFunc(list, o.home) {
		list = slices.DeleteFunc(list, func(w way) bool { return w.oneModel && !o.home(w) })
	}
	return list
}

func (o *oracle) count(f func(*asked) bool) (n int) {
	for _, q := range o.running {
		if f(q) {
			n++
		}
	}
	return n
}

// free reports whether a connector and a server have a place.
func (o *oracle) free(deployment string, w way) bool {
	limit, most := o.deps[deployment].MaxConcurrency, o.online[w.connector].MaxRequests
	if limit == 0 && w.oneModel {
		limit = 4
	}
	here := o.count(func(q *asked) bool { return q.way.connector == w.connector })
	there := o.count(func(q *asked) bool {
		return q.way.connector == w.connector && q.way.server == w.server && q.Deployment == deployment
	})
	return (most == 0 || here < most) && (limit == 0 || there < limit)
}

// models returns the waiting models of a server in order.
type waitingModel struct {
	name     string
	priority int // rank / 2: the smallest is the highest
	since    time.Time
	overdue  bool
	loaded   bool
	number   int
}

func (o *oracle) models(w way, now time.Time) (list []waitingModel) {
	s := o.server(w)
	for _, q := range o.waiting {
		for _, v := range o.may(q.Request) {
			if v.connector != w.connector || v.server != w.server {
				continue
			}
			i := slices.IndexFunc(list, func(m waitingModel) bool { return m.name == v.model })
			if i < 0 {
				i, list = len(list), append(list, waitingModel{v.model, q.rank / 2, q.since, false, v.model == s.loaded, q.number})
			}
			m := &list[i]
			m.priority = min(m.priority, q.rank/2)
			if c := q.since.Compare(m.since); c < 0 || c == 0 && q.number < m.number {
				m.since, m.number = q.since, q.number
			}
		}
	}
	for i := range list {
		m := &list[i]
		if ended := s.ended[m.name]; ended.After(m.since) {
			m.since = ended
		}
		if m.loaded {
			m.since = now
		}
		m.overdue = now.Sub(m.since) >= 4*o.swapAfter
	}
	slices.SortFunc(list, func(m, n waitingModel) int {
		if m.overdue != n.overdue || m.overdue {
			return cmp.Or(less(m.overdue, n.overdue), m.since.Compare(n.since), cmp.Compare(m.number, n.number))
		}
		return cmp.Or(cmp.Compare(m.priority, n.priority), m.since.Compare(n.since), less(n.loaded, m.loaded),
			cmp.Compare(m.number, n.number))
	})
	return list
}

// less orders true before false.
func less(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// close closes and opens the loaded models.
func (o *oracle) close(now time.Time) {
	for range len(o.servers) + 1 { // one may depend on another
		for id, c := range o.online {
			for _, f := range c.Servers {
				if f.OneModel {
					o.closeOne(way{connector: id, server: f.Name}, now)
				}
			}
		}
	}
}

func (o *oracle) closeOne(w way, now time.Time) {
	s, models := o.server(w), o.models(w, now)
	if !slices.ContainsFunc(models, func(m waitingModel) bool { return m.name == s.closing }) {
		s.closing = ""
	}
	if s.closing != "" || s.loaded == "" || s.filling {
		return
	}
	own := 3
	for _, q := range o.running {
		if q.way.connector == w.connector && q.way.server == w.server {
			own = min(own, q.rank/2)
		}
	}
	if i := slices.IndexFunc(models, func(m waitingModel) bool { return m.loaded }); i >= 0 {
		own = models[i].priority
	} else if own == 3 {
		own = 2
	}
	for _, m := range models {
		if !m.loaded && (m.overdue || m.priority < own && now.Sub(m.since) >= 5*time.Second ||
			m.priority <= own && !s.turn.IsZero() && now.Sub(s.turn) >= o.swapAfter) {
			s.closing = m.name
			return
		}
	}
}

// sendable reports whether a server may get a request for a model, apart from places.
func (o *oracle) sendable(w way, now time.Time, arriving bool) bool {
	s := o.server(w)
	n := o.count(func(q *asked) bool { return q.way.connector == w.connector && q.way.server == w.server })
	switch models := o.models(w, now); {
	case !w.oneModel:
		return true
	case n > 0:
		return o.home(w)
	case arriving:
		return true
	case s.closing == "" && slices.ContainsFunc(models, func(m waitingModel) bool { return m.loaded }):
		return s.loaded == w.model
	default:
		return models[0].name == w.model
	}
}

// line returns the waiting requests of a deployment in the order of turns.
func (o *oracle) line(deployment string) (list []*asked) {
	for _, q := range o.waiting {
		if q.Deployment == deployment {
			list = append(list, q)
		}
	}
	slices.SortFunc(list, func(p, q *asked) int {
		return cmp.Or(cmp.Compare(p.rank, q.rank), cmp.Compare(o.stamps[p.ownerKey], o.stamps[q.ownerKey]),
			cmp.Compare(o.stamps[p.keyKey], o.stamps[q.keyKey]), o.age(p, q))
	})
	return list
}

func (o *oracle) age(p, q *asked) int {
	return cmp.Or(p.Arrived.Compare(q.Arrived), cmp.Compare(p.number, q.number))
}

// next returns who is next at a connector.
func (o *oracle) next(connector string, now time.Time) (best *asked, to way) {
	for deployment := range o.deps {
		for _, q := range o.line(deployment) {
			i := slices.IndexFunc(o.may(q.Request), func(w way) bool { return w.connector == connector })
			if i < 0 {
				continue
			}
			w := o.may(q.Request)[i]
			if o.free(deployment, w) && o.sendable(w, now, false) && (best == nil || o.compare(q, best, connector) < 0) {
				best, to = q, w
			}
			break
		}
	}
	return best, to
}

func (o *oracle) compare(p, q *asked, connector string) int {
	running := func(owner, key string) int {
		return o.count(func(r *asked) bool {
			return r.way.connector == connector && r.Client.Owner == owner && (key == "*" || r.Client.Key == key)
		})
	}
	served := func(party string) int { return max(o.stamps["served "+connector+party], o.stamps["came"+party]) }
	return cmp.Or(cmp.Compare(p.rank, q.rank),
		cmp.Compare(running(p.Client.Owner, "*"), running(q.Client.Owner, "*")),
		cmp.Compare(running(p.Client.Owner, p.Client.Key), running(q.Client.Owner, q.Client.Key)),
		cmp.Compare(served(owner(p)), served(owner(q))), cmp.Compare(served(key(p)), served(key(q))), o.age(p, q))
}

func owner(q *asked) string { return " " + q.Client.Owner }
func key(q *asked) string   { return " " + q.Client.Owner + "/" + q.Client.Key }

// join adds a waiting request to the turns of its line.
func (o *oracle) join(q *asked) {
	q.ownerKey = fmt.Sprint("turn ", q.Deployment, q.rank, owner(q))
	q.keyKey = fmt.Sprint("turn ", q.Deployment, q.rank, key(q))
	o.clock++
	for _, group := range []string{q.ownerKey, q.keyKey} {
		if !slices.ContainsFunc(o.waiting, func(r *asked) bool {
			return r != q && (r.ownerKey == group || r.keyKey == group)
		}) {
			o.stamps[group] = o.clock
		}
	}
}
