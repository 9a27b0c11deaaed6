package store_test

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

func mustScope(t testing.TB, patterns string) scope.Scope {
	t.Helper()
	s, err := scope.Parse(patterns)
	must(t, err)
	return s
}

// named sets a deployment with these names.
func named(t testing.TB, s *store.Store, name string, alsoAs ...string) error {
	t.Helper()
	_, err := s.SetDeployment(t.Context(),
		store.Deployment{Account: account, Name: name, Connectors: []string{"box"}, AlsoAs: alsoAs})
	return err
}

// mustName sets deployments, whose names are separated by spaces, the public name first.
func mustName(t testing.TB, s *store.Store, deployments ...string) {
	t.Helper()
	if len(s.Connectors(account)) == 0 {
		must(t, errOf(s.CreateConnector(t.Context(), account, "box")))
	}
	for _, d := range deployments {
		if names := strings.Fields(d); named(t, s, names[0], names[1:]...) != nil {
			t.Fatal(d, named(t, s, names[0], names[1:]...))
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := storetest.Open(t, path)
	if _, ok := s.Resolve(account, "m", mustScope(t, "*")); ok {
		t.Error("an account without deployments has one")
	}
	mustName(t, s, "coder:latest", "big gpt-4o claude-* z-*-x", "small * claude-haiku-* z-*?x", "Twin", "twin:latest")
	for _, s := range []*store.Store{s, reopen(t, s, path)} {
		for _, c := range []struct{ scope, asked, want string }{
			{"*", "big", "big"},
			{"*", "gpt-4o", "big"},
			{"*", "claude-sonnet-5-5", "big"},
			{"*", "claude-haiku-4-5-20251001[1m]", "small"},
			{"*", "z-1-x", "big"}, // of patterns with as many letters, the first by text
			{"*", "coder", "coder:latest"},
			{"*", "CODER:Latest", "coder:latest"},
			{"*", "GPT-4O", "big"},
			{"*", "BIG:latest", "big"},
			{"*", "Twin", "Twin"},
			{"*", "twin:latest", "twin:latest"},
			{"*", "twin", "small"}, // two have its canonical form
			{"*", "anything\n", "small"},
			{"*", strings.Repeat("a", 128), "small"},
			{"*", strings.Repeat("a", 129), ""}, // too long for a pattern
			{"big,coder*", "coder", "coder:latest"},
			{"big,Twin", "twin", "Twin"}, // the other one is out of scope
			{"big", "claude-haiku-x", "big"},
			{"small", "gpt-4o", "small"}, // as for any other name
			{"small", "big", "small"},
			{"big", "small", "(small)"},
			{"big", "other", ""},
			{"gpt*,claude*", "gpt-4o", ""}, // a scope is about public names
		} {
			in := mustScope(t, c.scope)
			d, ok := s.Resolve(account, c.asked, in)
			got := d.Name
			if ok && !in.Allows(d.Name) {
				got = "(" + d.Name + ")"
			}
			if got != c.want || ok != (got != "") {
				t.Errorf("in the scope %s, %.40q is %q, %v, not %q", c.scope, c.asked, got, ok, c.want)
			}
		}
		if _, ok := s.Resolve("other", "big", mustScope(t, "*")); ok {
			t.Error("another account has the names")
		}
		d, _ := s.Deployment(account, "big")
		if !slices.Equal(d.Names(), []string{"big", "gpt-4o"}) ||
			!slices.Equal(d.AlsoAs, []string{"gpt-4o", "claude-*", "z-*-x"}) {
			t.Errorf("names %q, also as %q", d.Names(), d.AlsoAs)
		}
	}
}

// A name belongs to one deployment of the account, and is free when that is removed or gives it up.
func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := storetest.Open(t, path)
	mustName(t, s, "a one claude-*", "b")
	backup := filepath.Join(t.TempDir(), "restored.db")
	must(t, errOf(store.RestoreBolt(t.Context(), backUp(t, s), backup, s.Deployments(account)[0].CreatedAt)))
	for _, s := range []*store.Store{reopen(t, s, path), storetest.Open(t, backup)} {
		for _, c := range []struct {
			kind  error
			part  string
			names []string
		}{
			{store.ErrExists, `the deployment "a" has the name "one"`, []string{"b", "one"}},
			{store.ErrExists, `"a" has the name "claude-*"`, []string{"b", "two", "claude-*"}},
			{store.ErrExists, `"a" has the name "one"`, []string{"one"}},
			{store.ErrExists, `"b" has the name "b"`, []string{"a", "b"}},
			{store.ErrInvalid, `the name "c" twice`, []string{"c", "c"}},
			{store.ErrInvalid, `the name "x" twice`, []string{"c", "x", "x"}},
			{store.ErrInvalid, "is empty", []string{"c", ""}},
			{store.ErrInvalid, "contains ' '", []string{"c", "x y"}},
			{store.ErrInvalid, "17 names, but the maximum is 16", append([]string{"c"}, make([]string, 17)...)},
		} {
			wantError(t, named(t, s, c.names[0], c.names[1:]...), c.kind, c.part)
		}
		mustName(t, s, "a claude-* other", "one", "a two claude-*", "b other") // other is free again
		must(t, errOf(s.RemoveDeployment(t.Context(), account, "a")))
		mustName(t, s, "two", "b other claude-* a")
		if d, _ := s.Resolve(account, "claude-x", mustScope(t, "*")); d.Name != "b" {
			t.Errorf("claude-x is %q", d.Name)
		}
		for _, d := range s.Deployments(account) {
			must(t, errOf(s.RemoveDeployment(t.Context(), account, d.Name)))
		}
		if _, ok := s.Resolve(account, "claude-x", mustScope(t, "*")); ok {
			t.Error("a removed deployment has a name")
		}
	}
}

// Of two gateways that give the same name to two deployments, one fails.
func TestNamesOfTwoGateways(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
	a, b := newStore(t, share(kv)), newStore(t, share(kv))
	mustName(t, a, "first", "second")
	wait.Until(t, "b knows all", func() bool { return len(b.Deployments(account)) == 2 })
	for i := range 20 {
		for j, second := range []func(name string) error{
			func(name string) error { return named(t, b, "second", name) },
			func(name string) error { return named(t, b, name) },
		} {
			name, other := fmt.Sprintf("name-%d-%d", i, j), make(chan error)
			go func() { other <- second(name) }()
			errs := []error{named(t, a, "first", name), <-other}
			if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(cmp.Or(errs[0], errs[1]), store.ErrExists) {
				t.Fatalf("%v and %v", errs[0], errs[1])
			}
			mustName(t, a, "first")
			mustName(t, b, "second")
			if _, err := a.RemoveDeployment(t.Context(), account, name); err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
		}
	}
}

// A fallback exists when it is set. It may be removed later.
func TestFallback(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	mustName(t, s, "a", "b also-b")
	set := func(fallback string) error {
		_, err := s.EditDeployment(t.Context(), account, "a", func(d *store.Deployment) error {
			d.Fallback = fallback
			return nil
		})
		return err
	}
	wantError(t, set("c"), store.ErrInvalid, `the fallback "c" is not a deployment`)
	wantError(t, set("also-b"), store.ErrInvalid, "use a public name")
	wantError(t, set("a"), store.ErrInvalid, "its own fallback")
	must(t, errOf(s.EditDeployment(t.Context(), account, "b", func(d *store.Deployment) error {
		d.Kind = store.EmbeddingsModel
		return nil
	})))
	wantError(t, set("b"), store.ErrInvalid, "is of a different kind")
	mustName(t, s, "b", "also-b")
	must(t, set("b"))
	must(t, errOf(s.RemoveDeployment(t.Context(), account, "b")))
	if err := set("b"); err != nil {
		t.Errorf("the fallback cannot stay: %v", err)
	}
	must(t, set(""))
	wantError(t, set("b"), store.ErrInvalid, "not a deployment")
}

func TestDefaultModel(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	_, _, err := s.CreateKey(t.Context(), account, store.KeyFields{Name: "x", Scope: "*", DefaultModel: "a*"})
	wantError(t, err, store.ErrInvalid, "default_model", "contains '*'")
	_, secret, err := s.CreateKey(t.Context(), account, store.KeyFields{Name: "x", Scope: "*", DefaultModel: "later"})
	must(t, err)
	if k, _ := s.FindKey(secret); k.DefaultModel() != "later" {
		t.Errorf("default model %q", k.DefaultModel())
	}
}

func TestResolveAllocatesNothing(t *testing.T) {
	s := storetest.New(t)
	mustName(t, s, "m other claude-*")
	all := mustScope(t, "*")
	if n := testing.AllocsPerRun(1000, func() { s.Resolve(account, "m", all) }); n != 0 {
		t.Errorf("a public name allocates %v times", n)
	}
}

// FuzzResolve compares Resolve with a search through all deployments.
func FuzzResolve(f *testing.F) {
	f.Add("a b* ?|c a* *|B:latest", "b", "*")
	f.Add("x *y|z x* x*y", "xyy", "z")
	f.Add("A|a|a:latest *", "a:LATEST", "a*,A")
	s := storetest.New(f)
	mustName(f, s, "seed")
	f.Fuzz(func(t *testing.T, deployments, asked, patterns string) {
		in, err := scope.Parse(patterns)
		if err != nil || len(deployments) > 200 {
			return
		}
		for _, d := range s.Deployments(account) {
			must(t, errOf(s.RemoveDeployment(t.Context(), account, d.Name)))
		}
		for d := range strings.SplitSeq(deployments, "|") {
			if names := strings.Fields(d); len(names) > 0 {
				_ = named(t, s, names[0], names[1:]...) // most names are invalid or taken
			}
		}
		got, _ := s.Resolve(account, asked, in)
		if want := search(s.Deployments(account), asked, in); got.Name != want {
			t.Errorf("%q in %s is %q, not %q: %+v", asked, patterns, got.Name, want, s.Deployments(account))
		}
	})
}

// search is a simple Resolve.
func search(all []store.Deployment, asked string, in scope.Scope) string {
	var canonical []string
	best, text, letters, public := "", "", -1, ""
	for _, d := range all {
		if d.Name == asked {
			public = d.Name
		}
		if !in.Allows(d.Name) || len(asked) > scope.MaxName {
			continue
		}
		if d.Name == asked || slices.Contains(d.AlsoAs, asked) {
			return d.Name
		}
		if slices.ContainsFunc(d.Names(), func(n string) bool { return scope.Canonical(n) == scope.Canonical(asked) }) {
			canonical = append(canonical, d.Name)
		}
		for _, p := range d.AlsoAs {
			n := len(strings.NewReplacer("*", "", "?", "").Replace(p))
			if scope.Match(p, asked) && (n > letters || n == letters && p < text) {
				best, text, letters = d.Name, p, n
			}
		}
	}
	if len(canonical) == 1 {
		return canonical[0]
	}
	return cmp.Or(best, public)
}
