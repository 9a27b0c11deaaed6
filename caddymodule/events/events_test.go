package events

import (
	"bytes"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/tests/storetest"
)

// recorder collects events.
type recorder struct {
	mu     sync.Mutex
	events []Event
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errOf returns the last result of a call, its error.
func errOf(results ...any) error {
	err, _ := results[len(results)-1].(error)
	return err
}

func (o *recorder) add(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

// take returns the names of the events since the last call.
func (o *recorder) take() (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		names = append(names, e.Name)
	}
	o.events = nil
	return names
}

func (o *recorder) expect(t *testing.T, when string, want ...string) {
	t.Helper()
	if got := o.take(); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", when, got, want)
	}
}

// Each change of the store becomes one event.
func TestEventsOfTheStore(t *testing.T) {
	st, ctx := storetest.New(t), t.Context()
	old, _, err := st.CreateKey(ctx, store.DefaultAccount, store.KeyFields{Name: "old", Scope: "*"})
	must(t, err)
	var out recorder
	s := newSources(st, out.add)
	key, _, err := st.CreateKey(ctx, store.DefaultAccount, store.KeyFields{Name: "new", Scope: "*"})
	must(t, err)
	out.expect(t, "a new key", eventKeyCreated)
	byAnna := store.WithActor(ctx, store.Actor{Name: "anna"})
	must(t, errOf(st.EnableKey(byAnna, store.DefaultAccount, key.ID, false)))
	want := map[string]any{
		"account": "default", "key_id": key.ID, "key_name": "new", "state": "disabled",
		"changed_by": "anna",
	}
	if got := out.events[0].Data; !reflect.DeepEqual(got, want) {
		t.Errorf("data %v", got)
	}
	out.expect(t, "a disabled key", eventKeyChanged)
	must(t, errOf(st.RotateKey(byAnna, store.DefaultAccount, key.ID, time.Hour)))
	out.expect(t, "a rotated key", eventKeyChanged)
	must(t, errOf(st.RevokeKey(ctx, store.DefaultAccount, old.ID)))
	out.expect(t, "an old key revoked", eventKeyRevoked)
	must(t, errOf(st.RemoveKey(ctx, store.DefaultAccount, old.ID)))
	out.expect(t, "a revoked key removed")
	must(t, errOf(st.RemoveKey(ctx, store.DefaultAccount, key.ID)))
	out.expect(t, "a valid key removed", eventKeyRevoked)

	p, code, err := st.CreatePairing(ctx, store.DefaultAccount, "anna")
	must(t, err)
	out.expect(t, "a pairing code")
	must(t, errOf(st.CreateAccount(ctx, "other")))
	s.PairingLimited()
	if got := out.events[0].Data; !reflect.DeepEqual(got, map[string]any{"account": "default"}) {
		t.Errorf("data %v", got)
	}
	out.expect(t, "many wrong codes", eventPairingLimited)
	must(t, errOf(st.ClaimPairing(ctx, code, strings.Repeat("a", 43), store.Device{Hostname: "den"})))
	out.expect(t, "a device", eventPairingRequested)
	s.PairingLimited()
	out.expect(t, "many wrong codes while no code waits")
	k, _, err := st.CreateKey(ctx, store.DefaultAccount, store.KeyFields{Name: "ci", Scope: "*"})
	must(t, err)
	out.expect(t, "a key", eventKeyCreated)
	nearlyUsed := limits.Crossing{
		State: limits.State{
			Limit: limits.TokensPerDay, Subject: limits.Subject{Of: limits.OfKey, ID: k.ID}, Max: 100, Used: 81,
		},
		Percent: 80,
	}
	s.LimitCrossed(store.DefaultAccount, nearlyUsed)
	if got, want := fmt.Sprint(out.events[0].Data), fmt.Sprint(map[string]any{
		"account": "default", "key_id": k.ID, "key_name": "ci", "limit": "tokens_per_day", "percent": "80", "used": "81",
		"max": "100",
	}); got != want {
		t.Errorf("data %s, want %s", got, want)
	}
	out.expect(t, "most of a limit", eventKeyLimit)
	g, err := st.CreateGroup(ctx, store.DefaultAccount, store.GroupFields{Name: "team", Scope: "*"})
	must(t, err)
	nearlyUsed.Subject = limits.Subject{Of: limits.OfGroup, ID: g.ID}
	s.LimitCrossed(store.DefaultAccount, nearlyUsed)
	if got := out.events[0].Data; got["group_id"] != g.ID || got["group_name"] != "team" {
		t.Errorf("data %v", got)
	}
	out.expect(t, "most of a limit of a group", eventGroupLimit)
	nearlyUsed.Subject = limits.Subject{Of: limits.OfAccount, ID: store.DefaultAccount}
	s.LimitCrossed(store.DefaultAccount, nearlyUsed)
	out.expect(t, "most of a limit of an account", eventAccountLimit)
	must(t, errOf(st.ApprovePairing(ctx, store.DefaultAccount, p.ID, "", "anna")))
	want = map[string]any{
		"account": "default", "pairing_id": p.ID, "hostname": "den", "os": "", "version": "", "remote": "", "fingerprint": "",
		"connector_id": st.Connectors("default")[0].ID, "connector_name": "den", "decided_by": "anna", "replaced": "false",
	}
	if got := out.events[0].Data; !reflect.DeepEqual(got, want) {
		t.Errorf("data %v, want %v", got, want)
	}
	out.expect(t, "approved", eventPairingApproved)

	den := st.Connectors("default")[0]
	for state, name := range map[health.State]string{
		health.Hanging: eventModelHanging, health.Available: eventModelAnswering, health.CutsPrompts: eventModelCutsPrompts,
		health.Slow: eventModelSlow,
	} {
		since := time.Date(2026, 11, 26, 3, 12, 0, 0, time.UTC)
		s.ModelChanged(store.DefaultAccount, "m", den.ID, health.Finding{
			State: state, Window: 4096, Speed: 4, Usual: 41.25, Since: since,
		})
		data := out.events[0].Data
		window, cuts := data["context_window"]
		speed := fmt.Sprint(data["tokens_per_second"], " ", data["usual_tokens_per_second"])
		if (speed == "4.0 41.2") != (state == health.Slow) {
			t.Errorf("%s: data %v", state, data)
		}
		if (data["remedy"] == nil) != (state == health.Available) || cuts != (state == health.CutsPrompts) ||
			cuts && window != "4096" || data["deployment"] != "m" || data["connector_name"] != "den" {
			t.Errorf("%s: data %v", state, data)
		}
		out.expect(t, "a model server "+state.String(), name)
	}

	s.close()
	must(t, errOf(st.CreateKey(ctx, store.DefaultAccount, store.KeyFields{Name: "late", Scope: "*"})))
	s.PairingLimited()
	s.ModelChanged(store.DefaultAccount, "m", den.ID, health.Finding{State: health.Hanging})
	out.expect(t, "closed")
}

// Deployments are reported when they are set.
func TestEventsOfDeployments(t *testing.T) {
	st, ctx := storetest.New(t), t.Context()
	p, code, err := st.CreatePairing(ctx, store.DefaultAccount, "anna")
	must(t, err)
	must(t, errOf(st.ClaimPairing(ctx, code, strings.Repeat("a", 43), store.Device{Hostname: "den"})))
	must(t, errOf(st.ApprovePairing(ctx, store.DefaultAccount, p.ID, "", "anna")))
	var out recorder
	s := newSources(st, out.add)
	defer s.close()
	for n := range 2 {
		setDeployment(t, st, fmt.Sprintf("model-%d", n))
		out.expect(t, "set", eventDeploymentChanged)
	}
	must(t, errOf(st.RemoveDeployment(ctx, store.DefaultAccount, "m")))
	out.expect(t, "removed", eventDeploymentRemoved)
	setDeployment(t, st, "model-1")
	out.expect(t, "made again", eventDeploymentChanged)
}

// setDeployment sets the deployment m with the only connector.
func setDeployment(t *testing.T, st *store.Store, model string) {
	t.Helper()
	d := store.Deployment{
		Account: store.DefaultAccount, Name: "m", Connectors: []string{st.Connectors("default")[0].ID},
		Model: model,
	}
	must(t, errOf(st.SetDeployment(t.Context(), d)))
}

// A connector that reconnects soon causes no event; one that stays away does.
func TestEventsOfTunnels(t *testing.T) {
	st := storetest.New(t)
	synctest.Test(t, func(t *testing.T) {
		var out recorder
		s := newSources(st, out.add)
		first, second := tunnel.NewHub(tunnel.Options{}), tunnel.NewHub(tunnel.Options{})
		s.Follow(first)
		s.Follow(first)
		s.Follow(second)
		if len(s.hubs) != 2 {
			t.Errorf("%d hubs are followed", len(s.hubs))
		}
		on := tunnel.Event{Online: true, Connector: "con_1", Account: "default", Name: "box"}
		off := on
		off.Online = false
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() }

		s.onTunnel(first, off)
		wait(time.Minute)
		out.expect(t, "gone before it came")
		s.onTunnel(first, on)
		s.onTunnel(first, on) // replaced by a newer tunnel
		out.expect(t, "online", eventConnectorOnline)
		for range 20 {
			s.onTunnel(first, off)
			wait(offlineAfter - time.Millisecond)
			s.onTunnel(first, on)
			wait(time.Second)
		}
		out.expect(t, "flapping")
		s.onTunnel(second, on)
		s.onTunnel(first, off)
		wait(time.Minute)
		out.expect(t, "moved to another listener")
		left := time.Now().UTC().Format(time.RFC3339)
		s.Unfollow(second)
		wait(offlineAfter - time.Millisecond)
		out.expect(t, "a moment before")
		wait(time.Millisecond)
		if len(out.events) == 1 && out.events[0].Data["since"] != left {
			t.Errorf("offline since %v, want %s", out.events[0].Data["since"], left)
		}
		out.expect(t, "offline", eventConnectorOffline)
		s.onTunnel(first, on)
		out.expect(t, "back", eventConnectorOnline)
		s.onTunnel(first, off)
		s.close()
		wait(time.Minute)
		out.expect(t, "closed")
		if len(s.presences) > 1 {
			t.Errorf("remembered: %v", s.presences)
		}
	})
}

// slowEmitter is a configuration with slow handlers.
type slowEmitter struct {
	recorder
	takes time.Duration
}

func (e *slowEmitter) Emit(ev Event) {
	time.Sleep(e.takes)
	e.add(ev)
}

// Events wait for the first configuration. From then on, they go to the newest one, and to the one
// before if that fails.
func TestFeedFollowsTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(Options{Logger: slog.New(slog.DiscardHandler)})
		defer f.close()
		old, next := &slowEmitter{takes: time.Second}, &slowEmitter{}
		send := func(names ...string) {
			for _, name := range names {
				f.add(Event{Name: name})
			}
			time.Sleep(time.Minute)
		}
		send("early", "too")
		f.Push(old)
		send("a", "b")
		old.expect(t, "the first", "early", "too", "a", "b")
		f.Push(next)
		send("c")
		next.expect(t, "reloaded", "c")
		f.Remove(next)
		send("d")
		old.expect(t, "rolled back", "d")
		f.Remove(old)
		send("e")
		f.Push(next)
		send()
		next.expect(t, "in between", "e")
		old.expect(t, "left")
	})
}

// A configuration ends after its running handlers, unless they take too long.
func TestFeedLeaveWaits(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{3 * time.Second: 3 * time.Second, time.Hour: emitGrace} {
		synctest.Test(t, func(t *testing.T) {
			f := newFeed(Options{Logger: slog.New(slog.DiscardHandler)})
			e := &slowEmitter{takes: takes}
			f.Push(e)
			f.add(Event{Name: "a"})
			synctest.Wait()
			began := time.Now()
			f.Remove(e)
			if d := time.Since(began); d != want {
				t.Errorf("with a handler of %v leaving took %v, want %v", takes, d, want)
			}
			f.close()
			time.Sleep(takes)
		})
	}
}

// Events that a slow handler cannot take are lost, counted, and logged once a second.
func TestFeedOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		lost := 0
		f := newFeed(Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Lost: func(reason string, n int) {
			if reason == LostByHandlers {
				lost += n
			}
		}})
		e := &slowEmitter{takes: time.Hour}
		f.Push(e)
		f.add(Event{Name: "held"})
		synctest.Wait()
		began := time.Now()
		for range buffer + 7 {
			f.add(Event{Name: "more"})
		}
		if lost != 7 {
			t.Errorf("%d are counted", lost)
		}
		if d := time.Since(began); d != 0 {
			t.Errorf("adding waited for %v", d)
		}
		time.Sleep(time.Second)
		f.add(Event{Name: "one more"})
		if n := strings.Count(log.String(), "failed to queue an event"); n != 2 ||
			!strings.Contains(log.String(), "left_out=6") {
			t.Errorf("the log has %q", log.String())
		}
		f.close()
		time.Sleep(e.takes)
		e.expect(t, "closed meanwhile", "held")
	})
}
