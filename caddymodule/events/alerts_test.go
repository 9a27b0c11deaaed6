package events

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/tests/storetest"
)

// alerts returns what people read of the events since the last call: "+name" for an alert, "-name" for its end.
func (o *recorder) alerts() (list []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		if e.Alert != NoAlert {
			list = append(list, []string{"", "+", "-"}[e.Alert]+e.Name)
		}
	}
	o.events = nil
	return list
}

func (o *recorder) expectAlerts(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := o.alerts(); !slices.Equal(got, want) {
		t.Errorf("%s: alerts %q, want %q", when, got, want)
	}
}

// An outage of a connector is an alert with an end. Connectors that come for the first time, or are removed, are none.
func TestAlertsOfConnectors(t *testing.T) {
	st := storetest.New(t)
	con, _, err := st.CreateConnector(t.Context(), store.DefaultAccount, "box")
	must(t, err)
	synctest.Test(t, func(t *testing.T) {
		var out recorder
		s := newSources(st, out.add)
		defer s.close()
		hub := tunnel.NewHub(tunnel.Options{})
		states := []tunnel.UpstreamState{{Name: "ollama", Server: health.Reported(true, nil, false)}}
		s.states = func(*tunnel.Hub, string) []tunnel.UpstreamState { return states }
		id := con.ID
		move := func(online, reported bool) {
			s.onTunnel(hub, tunnel.Event{
				Online: online, Reported: reported, Connector: id, Account: store.DefaultAccount, Name: "box",
			})
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		move(true, false)
		out.expectAlerts(t, "the first time")
		for range 2 {
			move(false, false)
			out.expectAlerts(t, "gone", "+connector_offline")
			move(true, false)
			out.expectAlerts(t, "back", "-connector_online")
			states[0].Server, states[0].Since = health.Reported(false, nil, false), time.Now()
			move(true, true)
			out.expectAlerts(t, "a model server is down", "+upstream_down")
			states[0].Server = health.Reported(true, nil, false)
			move(true, true)
			out.expectAlerts(t, "it is up", "-upstream_up")
		}
		id = "con_removed"
		move(true, false)
		move(false, false)
		if out.expectAlerts(t, "removed"); len(s.alerts.offline) != 0 {
			t.Errorf("known: %v", s.alerts.offline)
		}
	})
}

// The models of a server that hangs have one alert, and one end. Each slow model has its own, but two names of it have
// one. A changed deployment has no alert, and no end.
func TestAlertsOfModels(t *testing.T) {
	st, ctx := storetest.New(t), t.Context()
	con, _, err := st.CreateConnector(ctx, store.DefaultAccount, "box")
	must(t, err)
	set := func(name, upstream, model string) {
		must(t, errOf(st.SetDeployment(ctx, store.Deployment{
			Account: store.DefaultAccount, Name: name, Connectors: []string{con.ID}, Upstream: upstream, Model: model,
		})))
	}
	set("a", "ollama", "")
	set("b", "ollama", "")
	set("b-again", "ollama", "b")
	set("c", "vllm", "")
	set("d", "", "")
	var out recorder
	s := newSources(st, out.add)
	defer s.close()
	is := func(name string, state health.State) {
		s.ModelChanged(store.DefaultAccount, name, con.ID, health.Finding{State: state})
	}
	is("a", health.Hanging)
	out.expectAlerts(t, "a server hangs", "+model_hanging")
	is("b", health.Hanging)
	is("a", health.Hanging)
	out.expectAlerts(t, "another model of it")
	is("c", health.Hanging)
	is("d", health.Hanging)
	out.expectAlerts(t, "two other servers, as far as it is known", "+model_hanging", "+model_hanging")
	is("a", health.Available)
	out.expectAlerts(t, "one model answers")
	is("b", health.Available)
	out.expectAlerts(t, "all models answer", "-model_answering")
	is("a", health.Slow)
	is("b", health.Slow)
	is("b-again", health.Slow)
	out.expectAlerts(t, "two slow models", "+model_slow", "+model_slow")
	is("a", health.CutsPrompts)
	is("a", health.Available)
	out.expectAlerts(t, "another state", "+model_cuts_prompts", "-model_answering")
	set("b", "vllm", "")
	is("b-again", health.Available)
	is("b", health.Available)
	out.expectAlerts(t, "a changed deployment", "-model_answering")
	must(t, errOf(st.RemoveDeployment(ctx, store.DefaultAccount, "c")))
	must(t, errOf(st.RemoveDeployment(ctx, store.DefaultAccount, "d")))
	is("a", health.Slow)
	s.alerts.forget(con.ID)
	if out.expectAlerts(t, "removed", "+model_slow"); len(s.alerts.models) != 0 {
		t.Errorf("known: %v", s.alerts.models)
	}
	s.presences[con.ID] = &presence{hubs: map[*tunnel.Hub]bool{nil: true}}
	defer delete(s.presences, con.ID)
	s.states = func(*tunnel.Hub, string) []tunnel.UpstreamState { return []tunnel.UpstreamState{{Name: "ollama"}} }
	set("d", "", "")
	is("d", health.Hanging)
	is("a", health.Hanging)
	out.expectAlerts(t, "the only server", "+model_hanging")
}

// Of other changes, people read those that need attention.
func TestAlertsOfTheRest(t *testing.T) {
	s := &sources{store: storetest.New(t)}
	var begin, end []string
	for _, name := range []string{
		eventPairingRequested, eventPairingApproved, eventPairingLimited, eventKeyCreated, eventKeyChanged, eventKeyExpiring,
		eventKeyExpired, eventKeyRevoked, eventKeyLimit, eventGroupLimit, eventAccountLimit, eventDeploymentChanged,
		eventDeploymentRemoved,
		eventConnectorOnline, eventModelAnswering,
	} {
		switch s.alertOf(Event{Name: name}) {
		case AlertBegins:
			begin = append(begin, name)
		case AlertEnds:
			end = append(end, name)
		case NoAlert:
		}
	}
	if got := strings.Join(begin, " "); got !=
		"pairing_requested pairing_limited key_expiring key_expired key_limit group_limit account_limit" {
		t.Errorf("alerts: %s", got)
	}
	if !slices.Equal(end, []string{eventPairingApproved}) {
		t.Errorf("ends: %q", end)
	}
}

// limited is a receiver that refuses its first post, and wants some time without another one.
type limited struct {
	status       int
	header, body string
	times        []time.Time
}

// RoundTrip implements http.RoundTripper.
func (l *limited) RoundTrip(r *http.Request) (*http.Response, error) {
	l.times = append(l.times, time.Now())
	status := l.status
	if len(l.times) > 1 {
		status = http.StatusNoContent
	}
	h := http.Header{}
	if l.header != "" {
		h.Set("Retry-After", l.header)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(l.body)), Request: r}, nil
}

// A receiver gets no second post before the time that it asks for, in the header or in Discord's body.
func TestRetryAfter(t *testing.T) {
	discord := `{"message": "You are being rate limited.", "retry_after": 64.57, "global": false}`
	for name, c := range map[string]struct {
		limited
		want time.Duration
	}{
		"slack":         {limited{status: 429, header: "30", body: "rate_limited"}, 30 * time.Second},
		"discord":       {limited{status: 429, header: "65", body: discord}, 65 * time.Second},
		"discord, body": {limited{status: 429, body: discord}, 64570 * time.Millisecond},
		"ntfy": {
			limited{status: 429, body: `{"code":42901,"http":429,"error":"limit reached: too many requests"}`}, time.Second,
		},
		"date":        {limited{status: 503, header: "Sat, 01 Jan 2000 00:01:00 GMT"}, time.Minute},
		"past":        {limited{status: 503, header: "Sat, 01 Jan 2000 00:00:00 GMT"}, time.Second},
		"too long":    {limited{status: 429, header: "86400"}, webhookPatience},
		"much longer": {limited{status: 429, body: `{"retry_after": 1e300}`}, webhookPatience},
		"negative":    {limited{status: 429, header: "-5"}, time.Second},
		"no number":   {limited{status: 429, header: "NaN", body: `{"retry_after": "x"}`}, time.Second},
		"other error": {limited{status: 500, header: "30"}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, lost := newWebhook(&c.limited, io.Discard)
				w.Post("default", "model_gateway.connector_offline", "1", Payload{Body: []byte("{}")})
				time.Sleep(time.Hour)
				synctest.Wait()
				if len(c.times) != 2 || c.times[1].Sub(c.times[0]) != c.want || lost.Load() != 0 {
					t.Errorf("attempts at %v, want a pause of %v", c.times, c.want)
				}
				w.Close(false)
				synctest.Wait()
			})
		})
	}
}

// A test is one attempt, with the header of the configuration. Its error has no URL.
func TestTry(t *testing.T) {
	receiver := &limited{status: 429, header: "30"}
	w, _ := newWebhook(receiver, io.Discard)
	defer w.Close(false)
	err := w.Try(t.Context(), "model_gateway.test", "1", Payload{})
	if fmt.Sprint(err) != "the receiver responded with 429" || len(receiver.times) != 1 {
		t.Errorf("%v, %d attempts", err, len(receiver.times))
	}
	must(t, w.Try(t.Context(), "model_gateway.test", "2", Payload{}))
}
