package signin

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// newDesks returns the desks of several gateways on one KV.
func newDesks(t *testing.T, edges ...string) []*desk {
	t.Helper()
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
	var desks []*desk
	for _, edge := range edges {
		st, err := store.New(storetest.Share(kv), store.Options{Edge: edge})
		must(t, err)
		t.Cleanup(func() { st.Close() })
		desks = append(desks, newDeskOn(t, st))
	}
	return desks
}

// A ceremony that one gateway has begun can be answered at another one, and once at all of them, also after a restart.
func TestCeremoniesOfSeveralGateways(t *testing.T) {
	t.Parallel()
	desks := newDesks(t, "a", "b", "a")
	one, two, restarted := desks[0], desks[1], desks[2]
	ann, a := one.addUser(t, "ann"), newAuthenticator(t, origin)
	wait.Until(t, "the other knows the user", func() bool { _, ok := two.store.User(ann.ID); return ok })

	options, ceremony, err := one.BeginPasskey(t.Context(), ann, origin)
	must(t, err)
	must(t, errOf(two.FinishPasskey(t.Context(), ann, origin, ceremony, "phone", a.create(t, options))))
	thief := newAuthenticator(t, origin)
	if _, err := one.FinishPasskey(t.Context(), ann, origin, ceremony, "phone", thief.create(t, options)); err == nil ||
		!strings.Contains(err.Error(), "already completed") {
		t.Errorf("a second answer adds a passkey: %v", err)
	}
	wait.Until(t, "the first knows the passkey", func() bool { return len(one.store.Passkeys(ann.ID)) == 1 })

	var signed Signed
	for _, from := range []*desk{one, two} {
		options, ceremony, err := from.BeginPasskeySignIn(t.Context(), home, origin)
		must(t, err)
		answer := a.get(t, options)
		signed, err = two.FinishPasskeySignIn(t.Context(), Attempt{Address: home}, origin, ceremony, answer)
		must(t, err)
		for _, again := range []*desk{one, two} {
			_, err := again.FinishPasskeySignIn(t.Context(), Attempt{Address: home}, origin, ceremony, answer)
			if !errors.Is(err, ErrPasskey) || !strings.Contains(err.Error(), "already completed") {
				t.Errorf("a second answer: %v", err)
			}
		}
	}

	if options, ceremony, err = one.BeginPasskeySignIn(t.Context(), home, origin); err != nil {
		t.Fatal(err)
	}
	answer := a.get(t, options)
	if _, err := two.ConfirmByPasskey(t.Context(), signed.Session, home, origin, ceremony, answer); err != nil {
		t.Errorf("confirming: %v", err)
	}
	if _, err := restarted.FinishPasskeySignIn(t.Context(), Attempt{Address: home}, origin, ceremony,
		answer); !errors.Is(err, ErrPasskey) || !strings.Contains(err.Error(), "already completed") {
		t.Errorf("after a restart: %v", err)
	}
}

// Of two gateways that get the same answer concurrently, one accepts it, also if the passkey has no counter.
func TestAnswerAtTwoGateways(t *testing.T) {
	t.Parallel()
	desks := newDesks(t, "a", "b")
	ann, a := desks[0].addUser(t, "ann"), newAuthenticator(t, origin)
	desks[0].addPasskey(t, ann, a, "phone")
	wait.Until(t, "the other knows the passkey", func() bool { return len(desks[1].store.Passkeys(ann.ID)) == 1 })
	for round := range 10 {
		a.counter = ^uint32(0) // get adds one
		options, ceremony, err := desks[0].BeginPasskeySignIn(t.Context(), home, origin)
		must(t, err)
		answer := a.get(t, options)
		var errs [2]error
		var both sync.WaitGroup
		for i, d := range desks {
			d.guard = newGuard(nil)
			both.Go(func() {
				_, errs[i] = d.FinishPasskeySignIn(t.Context(), Attempt{Address: home}, origin, ceremony, answer)
			})
		}
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("round %d: %v and %v", round, errs[0], errs[1])
		}
	}
}

// Of two copies that use the same counter at two gateways concurrently, one is accepted.
func TestCopiedPasskeyAtTwoGateways(t *testing.T) {
	t.Parallel()
	desks := newDesks(t, "a", "b")
	ann, a := desks[0].addUser(t, "ann"), newAuthenticator(t, origin)
	desks[0].addPasskey(t, ann, a, "phone")
	for round := range 20 {
		wait.Until(t, "both have the same counter", func() bool {
			left, right := desks[0].store.Passkeys(ann.ID), desks[1].store.Passkeys(ann.ID)
			return len(right) == 1 && string(left[0].Credential) == string(right[0].Credential)
		})
		var errs [2]error
		var both sync.WaitGroup
		for i, d := range desks {
			d.guard = newGuard(nil)
			both.Go(func() {
				thief := *a
				_, errs[i] = d.passkey(t, home, &thief)
			})
		}
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("round %d: %v and %v", round, errs[0], errs[1])
		}
		for _, err := range errs {
			if err != nil && strings.Contains(err.Error(), "copied") {
				return // found: both are refused from now on
			}
		}
		a.counter++
	}
}

// Any gateway of the store can show a new secret, for a short time, in the session that created its
// record.
func TestHeldSecrets(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
	now := time.Now()
	var services [2]*Service
	for i := range services {
		st, err := store.New(storetest.Share(kv), store.Options{})
		must(t, err)
		t.Cleanup(func() { _ = st.Close() })
		if services[i], err = New(Options{Store: st, Now: func() time.Time { return now }}); err != nil {
			t.Fatal(err)
		}
	}
	session := store.Session{ID: "ses_1"}
	sealed, err := services[0].SealSecret(session, "key_1", "sk-svc-x")
	if err != nil || strings.Contains(sealed, "sk-svc") {
		t.Fatalf("%q, %v", sealed, err)
	}
	if got := services[1].OpenSecret(session, "key_1", sealed); got != "sk-svc-x" {
		t.Errorf("the other gateway opens %q", got)
	}
	for what, got := range map[string]string{
		"another session": services[1].OpenSecret(store.Session{ID: "ses_2"}, "key_1", sealed),
		"another record":  services[1].OpenSecret(session, "key_2", sealed),
		"another text":    services[1].OpenSecret(session, "key_1", sealed+"A"),
		"no text":         services[1].OpenSecret(session, "key_1", ""),
	} {
		if got != "" {
			t.Errorf("%s: opens %q", what, got)
		}
	}
	if _, err := services[1].sealer.openCeremony(sealed, "", "", now); err == nil {
		t.Error("a sealed secret is a ceremony")
	}
	if now = now.Add(SecretLife); services[1].OpenSecret(session, "key_1", sealed) != "" {
		t.Error("it opens too late")
	}
}
