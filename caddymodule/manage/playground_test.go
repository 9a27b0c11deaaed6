package manage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// playGateway returns a gateway with the deployment "public".
func playGateway(t *testing.T, server http.HandlerFunc) *gateway {
	t.Helper()
	g := newGateway(t)
	home := g.connector("default", "home", map[string]http.Handler{"ollama": server})
	g.deployment("public", home, "", "upstream-model")
	return g
}

func TestPlay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked string
		g := playGateway(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			asked = string(body)
			events("wait", think, "wait", hello, "wait", more, `{"choices":[{"delta":{},"finish_reason":"length"}]}`, usage,
				done)(w, r)
		})
		warm := 1.5
		var pieces []manage.Piece
		got, err := g.service.Play(asOperator(t.Context()), manage.Play{
			Model: "public", System: "Be brief.", Prompt: "quartz-sphinx", Temperature: &warm, MaxTokens: 20,
			Stop: []string{"END"},
		}, func(p manage.Piece) { pieces = append(pieces, p) })
		if err != nil || got.Error != "" || got.Answer != "Hello\n\x1b[31m" || got.Thinking != "hm" || !got.Cut ||
			got.Tokens != 11 || got.FirstTokenMillis != 100 || got.TokensPerSecond != 50 || got.Connector != "home" {
			t.Errorf("%+v, %v", got, err)
		}
		if fmt.Sprint(pieces) != "[{ hm} {Hel } {lo\n\x1b[31m }]" {
			t.Errorf("%q", pieces)
		}
		for _, part := range []string{
			`"model":"upstream-model"`, `Be brief.`, `quartz-sphinx`, `"temperature":1.5`,
			`"max_tokens":20`, `"stop":["END"]`, `"stream":true`,
		} {
			if !strings.Contains(asked, part) {
				t.Errorf("no %s in %s", part, asked)
			}
		}
		synctest.Wait()
		recent := g.activity.Recent("default")
		if len(recent) != 1 || recent[0].Operation != activity.Playground || recent[0].OutputTokens != 11 ||
			recent[0].InputTokens == 0 || !recent[0].Estimated || recent[0].KeyID != "" ||
			strings.Contains(fmt.Sprint(recent), "quartz") {
			t.Errorf("%+v", recent)
		}
	})
}

// A model that ignores the limit of tokens is stopped.
func TestPlayIsBounded(t *testing.T) {
	var sent atomic.Int64
	g := playGateway(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "data: "+hello+"\n\n"); err != nil {
				return
			}
			sent.Add(1)
		}
	})
	got, err := g.service.Play(asOperator(t.Context()), manage.Play{Model: "public", Prompt: "Hi", MaxTokens: 10}, nil)
	if err != nil || !got.Cut || got.Answer != strings.Repeat("Hel", 20) {
		t.Errorf("%d bytes, %v", len(got.Answer), err)
	}
}

// Tests and the playground count for the limits of the account, which refuse them in the words that
// clients get.
func TestConsoleIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		g := playGateway(t, func(w http.ResponseWriter, r *http.Request) {
			asked++
			events(hello, more, stop, usage, done)(w, r)
		})
		g.limit(limits.UsageLimits{RequestsPerDay: 1, MaxOutputTokens: 50})
		play := manage.Play{Model: "public", Prompt: "Hi", MaxTokens: 20}
		if got, err := g.service.Play(asOperator(t.Context()), play, nil); err != nil || got.Error != "" {
			t.Errorf("the first: %+v, %v", got, err)
		}
		synctest.Wait()
		const words = "Quota used up. This account is limited to 1 request per day and has used 1."
		got, err := g.service.Play(asOperator(t.Context()), play, nil)
		if err != nil || !strings.HasPrefix(got.Error, words) {
			t.Errorf("the next one: %+v, %v", got, err)
		}
		test, err := g.service.TestDeployment(asOperator(t.Context()), "public")
		if err != nil || test.OK || !strings.HasPrefix(test.Error, words) {
			t.Errorf("a test: %+v, %v", test, err)
		}
		if asked != 1 {
			t.Errorf("the model server was asked %d times", asked)
		}
		recent := g.activity.Recent("default")
		if len(recent) != 2 || !slices.ContainsFunc(recent, func(r activity.Request) bool {
			return r.Refusals == 2 && r.Operation == activity.Test && r.Status == http.StatusTooManyRequests &&
				r.ErrorClass == activity.PolicyError && r.BusyMillis == 0
		}) {
			t.Errorf("%+v", recent)
		}
	})
}

// The tokens of an answer count for the limits of the account, even if the user leaves before its end.
func TestPlayThatIsLeftCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := playGateway(t, events(hello, more, hello, more, "wait", stop, usage, done))
		g.limit(limits.UsageLimits{TokensPerDay: 1000})
		ctx, leave := context.WithCancel(asOperator(t.Context()))
		pieces := 0
		got, err := g.service.Play(ctx, manage.Play{Model: "public", Prompt: "Hi"}, func(manage.Piece) {
			if pieces++; pieces == 4 {
				leave()
			}
		})
		synctest.Wait()
		used, _ := g.ask.Limiter.Usage(t.Context(), "default", limits.AppendLevels(nil, "default", nil, ""))
		if err != nil || got.Error == "" || used.States[0].Used <= 4 {
			t.Errorf("%+v, %v: it has used %+v", got, err, used)
		}
		if recent := g.activity.Recent("default"); len(recent) != 1 || recent[0].OutputTokens != 4 || !recent[0].Estimated {
			t.Errorf("%+v", recent)
		}
		time.Sleep(time.Second) // until the model server has ended
	})
}

// An account has few answers at a time.
func TestPlaysAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := playGateway(t, events("wait", hello, stop, done))
		results := make(chan error, 5)
		for range 5 {
			go func() {
				_, err := g.service.Play(asOperator(t.Context()), manage.Play{Model: "public", Prompt: "Hi"}, nil)
				results <- err
			}()
		}
		time.Sleep(time.Second)
		failed := 0
		for range 5 {
			if err := <-results; errors.Is(err, store.ErrLimit) {
				failed++
			} else if err != nil {
				t.Error(err)
			}
		}
		if failed != 1 {
			t.Errorf("%d of 5 were refused", failed)
		}
		if _, err := g.service.Play(asOperator(t.Context()), manage.Play{Model: "public", Prompt: "Hi"}, nil); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// With a key, a user of any role that may create keys plays as a client with that key would.
func TestPlayWithAKey(t *testing.T) {
	var asked string
	g := playGateway(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = string(body)
		events(hello, more, stop, usage, done)(w, r)
	})
	member := g.person("mia", store.RoleMember)
	own := g.keyOf(member, "own", "public")
	play := func(caller manage.Caller, key string) (manage.Played, error) {
		return g.service.Play(manage.WithCaller(t.Context(), caller),
			manage.Play{Model: "public", Prompt: "Hi", Key: key}, nil)
	}
	if got, err := play(member, own.ID); err != nil || got.Error != "" || got.Answer == "" {
		t.Fatalf("%+v, %v", got, err)
	}
	if !strings.Contains(asked, `"max_tokens":7,`) {
		t.Errorf("asked: %s", asked)
	}
	wait.Until(t, "the prompt is counted", func() bool { return len(g.activity.Recent("default")) == 1 })
	recent := g.activity.Recent("default")
	if len(recent) != 1 || recent[0].KeyID != own.ID || recent[0].KeyName != "own" || recent[0].FromConsole() ||
		recent[0].Operation != activity.Playground {
		t.Errorf("%+v", recent)
	}
	if k, _ := g.store.Key("default", own.ID); k.LastUsedAt == nil {
		t.Error("the key was not used")
	}
	admin := g.person("ada", store.RoleAdmin)
	far := g.keyOf(member, "far", "public")
	must(t, errOf(g.store.EditKey(t.Context(), "default", far.ID, func(k *store.Key) error {
		k.AllowedIPs = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
		return nil
	}, func(store.Key) error { return nil })))
	off := g.keyOf(member, "off", "*")
	must(t, errOf(g.store.EnableKey(t.Context(), "default", off.ID, false,
		func(store.Key) error { return nil })))
	of := g.keyOf(admin, "of-ada", "*")
	for _, tt := range []struct {
		caller    manage.Caller
		key, want string
	}{
		{member, "", "members cannot do this"},
		{member, of.ID, "not found"},
		{admin, own.ID, "not found"},
		{manage.Caller{Account: "default"}, own.ID, "not found"},
		{member, g.keyOf(member, "narrow", "other").ID, `its scope is "other"`},
		{member, off.ID, "is disabled"},
		{member, far.ID, "address"},
		{member, "key_unknown", "not found"},
	} {
		if _, err := play(tt.caller, tt.key); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %q: %v, want %q", tt.caller.Name, tt.key, err, tt.want)
		}
	}
	member.From = "198.51.100.7"
	if _, err := play(member, far.ID); err != nil {
		t.Errorf("from an allowed address: %v", err)
	}
	wait.Until(t, "the prompt is counted", func() bool { return len(g.activity.Recent("default")) == 2 })
}

// An answer ends when its key is revoked, as a client's does.
func TestPlayEndsWithItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := playGateway(t, events(hello, "wait", "wait", more, stop, usage, done))
		member := g.person("mia", store.RoleMember)
		own := g.keyOf(member, "own", "*")
		revoked := make(chan error, 1)
		got, err := g.service.Play(manage.WithCaller(t.Context(), member),
			manage.Play{Model: "public", Prompt: "Hi", Key: own.ID}, func(manage.Piece) {
				go func() {
					_, err := g.store.RevokeKey(t.Context(), "default", own.ID, func(store.Key) error { return nil })
					revoked <- err
				}()
			})
		must(t, <-revoked)
		if err != nil || !strings.Contains(got.Error, "revoked during this request") {
			t.Errorf("%+v, %v", got, err)
		}
		synctest.Wait()
		if recent := g.activity.Recent("default"); len(recent) != 1 || recent[0].ErrorClass != activity.PolicyError {
			t.Errorf("%+v", recent)
		}
		time.Sleep(time.Second) // until the model server has ended
	})
}

// lossy loses its store for too long after each report that it serves.
type lossy struct {
	*storetest.Edge
	cut func()
}

func (l *lossy) Serving() error {
	l.cut()
	return nil
}

// A request with a key that begins while the gateway loses its store ends, as a client's does.
func TestPlayWithoutAStore(t *testing.T) {
	edge := &lossy{Edge: new(storetest.Edge), cut: func() {}}
	st, err := store.New(storetest.OpenBolt(t, t.TempDir()+"/shared.db"), store.Options{Edge: "a", Cluster: edge})
	must(t, err)
	t.Cleanup(func() { _ = st.Close() })
	g := newGatewayOn(t, st, nil)
	home := g.connector("default", "home", map[string]http.Handler{"ollama": events(hello, more, stop, usage, done)})
	g.deployment("public", home, "", "upstream-model")
	member := g.person("mia", store.RoleMember)
	own := g.keyOf(member, "own", "*")
	edge.cut = st.CutRequests
	got, err := g.service.Play(manage.WithCaller(t.Context(), member),
		manage.Play{Model: "public", Prompt: "Hi", Key: own.ID}, nil)
	if err != nil || !strings.Contains(got.Error, "lost its store") {
		t.Errorf("%+v, %v", got, err)
	}
}

// A request that waits for limits or its turn ends with its key, and the model server does not get it. It counts for
// the key, by the reason.
func TestPlayThatWaitsEndsWithItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		g := playGateway(t, func(w http.ResponseWriter, r *http.Request) { sent++; hang(w, r) })
		must(t, errOf(g.store.SetDeployment(t.Context(), store.Deployment{
			Account: "default", Name: "public", Connectors: g.onlyConnector(), MaxConcurrency: 1,
		})))
		go func() {
			_, _ = g.service.Play(asOperator(t.Context()), manage.Play{Model: "public", Prompt: "Hi"}, nil)
		}()
		synctest.Wait()
		member := g.person("mia", store.RoleMember)
		own := g.keyOf(member, "own", "*")
		time.AfterFunc(time.Second, func() {
			if _, err := g.store.EditKey(t.Context(), "default", own.ID, func(k *store.Key) error {
				k.Scope = "other"
				return nil
			}, func(store.Key) error { return nil }); err != nil {
				t.Error(err)
			}
		})
		got, err := g.service.Play(manage.WithCaller(t.Context(), member),
			manage.Play{Model: "public", Prompt: "Hi", Key: own.ID}, nil)
		if err != nil || !strings.Contains(got.Error, "may no longer use this model") || sent != 1 {
			t.Errorf("%+v, %v, sent %d times", got, err, sent)
		}
		if recent := g.activity.Recent("default"); len(recent) != 1 || recent[0].ErrorClass != activity.PolicyError ||
			recent[0].KeyID != own.ID {
			t.Errorf("%+v", recent)
		}
		time.Sleep(5 * time.Minute) // until the first one has ended
	})
}

// onlyConnector returns the id of the only connector.
func (g *gateway) onlyConnector() []string { return []string{g.store.Connectors("default")[0].ID} }

// person returns a user of a role as a caller.
func (g *gateway) person(name string, role store.Role) manage.Caller {
	g.t.Helper()
	u, err := g.store.CreateUser(g.t.Context(), "default", name, "", role)
	must(g.t, err)
	return manage.Caller{Account: "default", User: u.ID, Name: name, From: "192.0.2.9"}
}

// keyOf returns a key of a user, with a limit of tokens for answers.
func (g *gateway) keyOf(owner manage.Caller, name, scope string) store.Key {
	g.t.Helper()
	k, _, err := g.store.CreateKey(g.t.Context(), "default", store.KeyFields{
		Name: name, Scope: scope, Owner: owner.User, Limits: limits.UsageLimits{MaxOutputTokens: 7},
	})
	must(g.t, err)
	return k
}
