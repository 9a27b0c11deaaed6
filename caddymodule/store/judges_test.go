package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// A judge is a chat model when it is set. It may be removed later.
func TestJudge(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	mustName(t, s, "a", "b also-b", "e")
	edit := func(name string, change func(*store.Deployment)) error {
		_, err := s.EditDeployment(t.Context(), account, name, func(d *store.Deployment) error {
			change(d)
			return nil
		})
		return err
	}
	set := func(judge string) error {
		return edit("a", func(d *store.Deployment) { d.Options.Safeguards = judge })
	}
	if err := edit("e", func(d *store.Deployment) { d.Kind = store.EmbeddingsModel }); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"c", "also-b", "e"} {
		wantError(t, set(wrong), store.ErrInvalid, `"`+wrong+`" is not a chat model of the account`)
	}
	for _, judge := range []string{"self", "a", "b"} {
		if err := set(judge); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.RemoveDeployment(t.Context(), account, "b"); err != nil {
		t.Fatal(err)
	}
	if err := set("b"); err != nil {
		t.Errorf("the judge cannot stay: %v", err)
	}
}

// setJudge sets the judge of a deployment.
func setJudge(t testing.TB, s *store.Store, name, judge string) error {
	t.Helper()
	_, err := s.EditDeployment(t.Context(), account, name, func(d *store.Deployment) error {
		d.Connectors, d.Options.Safeguards = []string{"box"}, judge
		return nil
	})
	return err
}

// Deployments do not judge each other, through any number of others. Each may judge itself.
func TestNoCycleOfJudges(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	const n = 20
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("m%03d", i)
	}
	mustName(t, s, names...)
	for i, name := range names[1:] {
		if err := setJudge(t, s, names[i], name); err != nil {
			t.Fatal(err)
		}
		if i < 5 || i == n-2 {
			wantError(t, setJudge(t, s, name, names[0]), store.ErrInvalid, `"m000" is judged by "`+name+`", or its judge is`)
		}
	}
	last := names[n-1]
	for _, judge := range []string{last, "self", ""} {
		if err := setJudge(t, s, last, judge); err != nil {
			t.Errorf("%q judges %q: %v", judge, last, err)
		}
	}
	// A deployment that was removed closes no cycle when it comes back.
	if _, err := s.RemoveDeployment(t.Context(), account, last); err != nil {
		t.Fatal(err)
	}
	wantError(t, setJudge(t, s, last, "m003"), store.ErrInvalid, `"m003" is judged by`)
	wantError(t, setJudge(t, s, last, last), store.ErrInvalid, "is not a chat model") // it does not exist yet
	mustName(t, s, last)
}

// Of two gateways that let two deployments judge each other, one fails.
func TestJudgesOfTwoGateways(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
	stores := [...]*store.Store{newStore(t, share(kv)), newStore(t, share(kv)), newStore(t, share(kv))}
	names := [...]string{"a", "b", "c"}
	mustName(t, stores[0], names[:]...)
	for _, s := range stores {
		wait.Until(t, "each knows all", func() bool { return len(s.Deployments(account)) == len(names) })
	}
	for range 20 {
		errs := make(chan error)
		for i, s := range stores {
			go func() { errs <- setJudge(t, s, names[i], names[(i+1)%len(names)]) }()
		}
		refused := 0
		for range stores {
			if err := <-errs; errors.Is(err, store.ErrInvalid) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if refused != 1 {
			t.Fatalf("%d of three were refused", refused)
		}
		for _, name := range names {
			if err := setJudge(t, stores[0], name, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
}
