package tunnel

import (
	"slices"

	"github.com/postern-dev/postern/connector/link"
)

// Published is what was last published to the peers about a session; zero: nothing.
type Published struct {
	reported *states
	active   int
}

// Changes returns messages about changes of this gateway's tunnels that take requests, and updates
// published. Changes of their running requests are included only if active is set.
func (h *Hub) Changes(published map[*Session]Published, active bool) (changes []link.Message) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, s := range h.live {
		if !s.usable() {
			continue
		}
		before := published[s]
		now := Published{reported: s.reported.Load(), active: before.active}
		if active || before.reported == nil {
			now.active = s.Active()
		}
		if now != before {
			changes = append(changes, s.Messages(before, now)...)
			published[s] = now
		}
	}
	for s := range published {
		if h.live[s.connector.ID] != s || !s.usable() {
			changes = append(changes, link.Tunnel{Session: s.id, Ended: true})
			delete(published, s)
		}
	}
	return changes
}

// Messages returns the messages about the changes between two states of a session. A report has its own
// message, because a message with hello and report may be too large.
func (s *Session) Messages(before, now Published) []link.Message {
	rtt := s.shortestRTT().Microseconds()
	m := link.Tunnel{Session: s.id, Active: now.active, RTTMicros: rtt}
	if before.reported == nil {
		m.Opened = &link.TunnelOpened{
			Hello: s.hello, Account: s.connector.Account, Name: s.connector.Name, Pairing: s.connector.Pairing,
			Transport: s.conn.Transport(), Remote: s.conn.RemoteAddr().String(), Since: s.since,
		}
	}
	messages := []link.Message{m}
	if now.reported != before.reported && *now.reported != nil {
		report := new(link.Report)
		for name, u := range *now.reported {
			report.Upstreams = append(report.Upstreams, link.UpstreamReport{
				Name: name, Reachable: u.Reachable, Models: slices.Clone(u.Models), Open: u.Open,
				Windows: u.Windows, Status: u.Status, Strict: u.Strict,
			})
		}
		messages = append(messages, link.Tunnel{Session: s.id, Report: report, Active: now.active, RTTMicros: rtt})
	}
	return messages
}
