package tunnel

import (
	"reflect"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/connector/link"
)

// reportCost is how many messages a report counts as, because it may be large. A
// connector sends at most one per second.
const reportCost = messagesPerSecond

// UpstreamState is the state of an upstream as reported by its connector. Its list of
// models must not be changed.
type UpstreamState struct {
	Name string
	health.Server
	Since    time.Time // last change of Reachable on this tunnel; zero: unknown
	OneModel bool      // it loads one model at a time
}

// states are the reported states of a connector's upstreams by name; nil: no report.
type states map[string]UpstreamState

// cost returns how much a message counts against the connector's rate limit.
func cost(m link.Message) int {
	switch m.(type) {
	case link.Report:
		return reportCost
	default:
		return 1
	}
}

// report handles a report about the connector's upstreams. A report that exceeds its
// limits is ignored.
func (s *Session) report(m link.Report) {
	if err := m.Check(); err != nil {
		if !s.misreported.Swap(true) {
			s.log().Warn("ignoring invalid upstream reports of a connector", "error", err)
		}
		return
	}
	old, now := *s.reported.Load(), time.Now()
	s.reportNotAt(m.NotAt, now)
	next, changed := make(states, len(m.Upstreams)), old == nil || len(old) != len(m.Upstreams)
	for _, u := range m.Upstreams {
		state := UpstreamState{Name: u.Name, Since: now, Server: health.Reported(u.Reachable, u.Models, u.Open)}
		state.Windows, state.Status, state.Strict = u.Windows, u.Status, u.Strict
		before := old[u.Name]
		if before.Known && before.Reachable == u.Reachable {
			state.Since = before.Since
		}
		changed = changed || !reflect.DeepEqual(before.Server, state.Server)
		next[u.Name] = state
	}
	if !changed {
		return
	}
	s.reported.Store(&next)
	s.hub.addReport(s)
}

// NotAt is a gateway of the cluster to which a connector has no tunnel, as it reports.
type NotAt struct {
	Edge   string    `json:"edge"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`
}

func (s *Session) reportNotAt(reported []link.NotAt, now time.Time) {
	var list []NotAt
	for _, n := range reported {
		since := now.Add(-time.Duration(n.Millis) * time.Millisecond)
		list = append(list, NotAt{Edge: n.Edge, Since: since, Reason: n.Reason})
	}
	s.notAt.Store(&list)
}

// States returns the state of each of the connector's upstreams.
func (s *Session) States() []UpstreamState {
	list := make([]UpstreamState, len(s.hello.Upstreams))
	for i, name := range s.hello.Upstreams {
		list[i] = s.state(name)
	}
	return list
}

func (s *Session) state(upstream string) UpstreamState {
	u := (*s.reported.Load())[upstream]
	u.Name, u.OneModel = upstream, slices.Contains(s.hello.OneModel, upstream)
	return u
}

// addReport queues the event of a changed report.
func (h *Hub) addReport(s *Session) {
	defer h.events.deliver()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live[s.connector.ID] != s || s.silent.Load() {
		return // a connector that sends again gets an online event
	}
	event := eventOf(s, true)
	event.Reported = true
	h.events.add(event)
}
