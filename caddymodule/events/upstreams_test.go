package events

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/tests/storetest"
)

// A model server that is unreachable for a while causes one event, and its return another. One that is
// back soon causes none, and a connector that reports many model servers cannot flood the handlers.
func TestEventsOfUpstreams(t *testing.T) {
	st := storetest.New(t)
	con, _, err := st.CreateConnector(t.Context(), store.DefaultAccount, "box")
	must(t, err)
	synctest.Test(t, func(t *testing.T) {
		var out recorder
		s := newSources(st, out.add)
		defer s.close()
		hub := tunnel.NewHub(tunnel.Options{})
		states := []tunnel.UpstreamState{}
		s.states = func(*tunnel.Hub, string) []tunnel.UpstreamState { return states }
		event := tunnel.Event{Online: true, Connector: con.ID, Account: "default", Name: "box"}
		report := func(reachable bool, names ...string) {
			states = nil
			for _, name := range names {
				states = append(states, tunnel.UpstreamState{
					Name: name, Server: health.Reported(reachable, nil, false),
					Since: time.Now(),
				})
			}
			e := event
			e.Reported = true
			s.onTunnel(hub, e)
		}
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() }

		s.onTunnel(hub, event)
		report(true, "ollama")
		wait(time.Minute)
		out.expect(t, "reachable from the start", eventConnectorOnline)
		for range 5 {
			report(false, "ollama")
			wait(3 * time.Second)
			report(true, "ollama")
			wait(time.Minute)
		}
		out.expect(t, "a restart")
		report(false, "ollama")
		since := time.Now().UTC().Format(time.RFC3339)
		wait(offlineAfter - time.Millisecond)
		out.expect(t, "a moment before")
		wait(time.Millisecond)
		if d := out.events[0].Data; d["upstream"] != "ollama" || d["since"] != since || d["connector_id"] != con.ID ||
			d["connector_name"] != "box" || d["account"] != "default" {
			t.Errorf("data = %v", d)
		}
		out.expect(t, "down", eventUpstreamDown)
		wait(time.Hour)
		out.expect(t, "still down")
		report(true, "ollama")
		wait(offlineAfter)
		out.expect(t, "up again", eventUpstreamUp)

		report(false, "ollama")
		wait(time.Minute)
		out.expect(t, "down again", eventUpstreamDown)
		report(true, "other")
		wait(time.Minute)
		out.expect(t, "it was taken out of the configuration")

		var many []string
		for i := range 2*upstreamsAtOnce + 1 {
			many = append(many, fmt.Sprint(i))
		}
		report(false, many...)
		for i, want := range []int{upstreamsAtOnce, upstreamsAtOnce, 1, 0} {
			if wait(offlineAfter); len(out.take()) != want {
				t.Errorf("check %d: not %d events", i, want)
			}
		}

		// A connector that is online was seen now.
		wait(touchInterval)
		if c, _ := st.Connector(con.ID); c.LastSeenAt == nil || time.Since(*c.LastSeenAt) > touchInterval {
			t.Errorf("last seen %v, now is %v", c.LastSeenAt, time.Now())
		}
		left := time.Now()
		off := event
		off.Online = false
		s.onTunnel(hub, off)
		wait(time.Hour)
		out.expect(t, "offline", eventConnectorOffline)
		if c, _ := st.Connector(con.ID); c.LastSeenAt == nil || c.LastSeenAt.Sub(left).Abs() > time.Second {
			t.Errorf("last seen %v, want %v", c.LastSeenAt, left)
		}
	})
}
