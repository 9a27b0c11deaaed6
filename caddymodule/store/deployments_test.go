package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

func TestConnectors(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := storetest.Open(t, path)
	c, secret, err := s.CreateConnector(t.Context(), account, "Home GPU")
	must(t, err)
	if !regexp.MustCompile(`^con_[0-9a-v]{26}$`).MatchString(c.ID) ||
		!regexp.MustCompile(`^[0-9A-Za-z]{43}$`).MatchString(secret) {
		t.Errorf("the id is %q, the secret has %d bytes", c.ID, len(secret))
	}
	for _, s := range []*store.Store{s, reopen(t, s, path)} {
		if got, err := s.AuthenticateConnector(c.ID, secret); err != nil || got != c {
			t.Errorf("authenticated %+v, %v", got, err)
		}
		if got, ok := s.Connector(c.ID); !ok || got != c || !slices.Equal(s.Connectors(account), []store.Connector{c}) {
			t.Errorf("connector %+v, all %+v", got, s.Connectors(account))
		}
	}
}

func TestConnectorErrors(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	c, secret, err := s.CreateConnector(t.Context(), account, "Home GPU")
	must(t, err)
	other, otherSecret, _ := s.CreateConnector(t.Context(), account, "second")
	for id, secret := range map[string]string{
		c.ID: otherSecret, other.ID: secret, "": "", c.ID + " ": secret, "con_x": strings.Repeat("0", 43),
	} {
		wantError(t, errOf(s.AuthenticateConnector(id, secret)), store.ErrUnauthenticated, "invalid tunnel token")
	}
	_, _, err = s.CreateConnector(t.Context(), account, "Home GPU")
	wantError(t, err, store.ErrExists, `another connector has the name "Home GPU"`)
	wantError(t, errOf(s.CreateConnector(t.Context(), account, "con_mine")), store.ErrInvalid, "begins like an id")
	wantError(t, errOf(s.CreateConnector(t.Context(), "nobody", "x")), store.ErrNotFound, "unknown account")
	_, err = s.RemoveConnector(t.Context(), account, "third")
	wantError(t, err, store.ErrNotFound, `connector "third" not found`)
	if removed, err := s.RemoveConnector(t.Context(), account, "Home GPU"); err != nil || removed != c {
		t.Errorf("removed %+v, %v", removed, err)
	}
	if _, err := s.AuthenticateConnector(c.ID, secret); !errors.Is(err, store.ErrUnauthenticated) {
		t.Errorf("a removed connector is authenticated: %v", err)
	}
	if _, _, err := s.CreateConnector(t.Context(), account, "Home GPU"); err != nil {
		t.Errorf("the name is not free again: %v", err)
	}
	if _, err := s.RemoveConnector(t.Context(), account, other.ID); err != nil {
		t.Errorf("removing by id: %v", err)
	}
}

func TestDeployments(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := storetest.Open(t, path)
	one, _, _ := s.CreateConnector(t.Context(), account, "one")
	two, _, _ := s.CreateConnector(t.Context(), account, "two")
	first, err := s.SetDeployment(t.Context(),
		store.Deployment{
			Account: account, Name: "meta/llama:70b", Connectors: []string{"one"}, Upstream: "vllm",
			Model: "Llama 70B",
		})
	if err != nil || !slices.Equal(first.Connectors, []string{one.ID}) || first.CreatedAt.IsZero() ||
		first.UpdatedAt != first.CreatedAt {
		t.Fatalf("set %+v, %v", first, err)
	}
	second, err := s.SetDeployment(t.Context(),
		store.Deployment{
			Account: account, Name: "meta/llama:70b", Connectors: []string{two.ID, "one", "two"},
			MaxConcurrency: 3, Options: compat.Options{FileParts: true, RemoteMedia: compat.RemoteAllow},
		})
	if err != nil || !slices.Equal(second.Connectors, []string{two.ID, one.ID}) || second.MaxConcurrency != 3 ||
		second.Options.String() != "file_parts=true remote_media=allow" || second.Upstream != "" ||
		second.CreatedAt != first.CreatedAt || second.UpdatedAt.Before(first.UpdatedAt) {
		t.Fatalf("set again %+v, %v", second, err)
	}
	third, err := s.SetDeployment(t.Context(), store.Deployment{Account: account, Name: "a", Connectors: []string{"two"}})
	must(t, err)
	for _, s := range []*store.Store{s, reopen(t, s, path)} {
		if got, ok := s.Deployment(account, "meta/llama:70b"); !ok || !reflect.DeepEqual(got, second) {
			t.Errorf("deployment %+v", got)
		}
		if got := s.Deployments(account); !reflect.DeepEqual(got, []store.Deployment{third, second}) {
			t.Errorf("deployments %+v", got)
		}
		if _, ok := s.Deployment("other", "a"); ok || s.Deployments("other") != nil {
			t.Error("another account has the deployment")
		}
	}
}

func TestDeploymentErrors(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	c, _, _ := s.CreateConnector(t.Context(), account, "one")
	for _, x := range []struct {
		d    store.Deployment
		kind error
		part string
	}{
		{store.Deployment{Account: account, Name: "", Connectors: []string{c.ID}}, store.ErrInvalid, "empty"},
		{store.Deployment{Account: account, Name: "a b", Connectors: []string{c.ID}}, store.ErrInvalid, "contains ' '"},
		{
			store.Deployment{Account: account, Name: "a", Connectors: []string{c.ID}, Upstream: "\t"},
			store.ErrInvalid,
			"upstream",
		},
		{
			store.Deployment{Account: account, Name: "a", Connectors: []string{c.ID}, Model: " m"},
			store.ErrInvalid,
			"upstream's model",
		},
		{store.Deployment{Account: account, Name: "a"}, store.ErrInvalid, "at least one connector"},
		{
			store.Deployment{Account: account, Name: "a", Connectors: make([]string, 33)},
			store.ErrInvalid,
			"the maximum is 32",
		},
		{
			store.Deployment{Account: account, Name: "a", Connectors: []string{c.ID}, MaxConcurrency: -1},
			store.ErrInvalid,
			"max_concurrency",
		},
		{store.Deployment{
			Account: account, Name: "a", Connectors: []string{c.ID},
			Options: compat.Options{RemoteMedia: "https"},
		}, store.ErrInvalid, `"remote_media" must be deny or allow`},
		{
			store.Deployment{Account: account, Name: "a", Connectors: []string{""}},
			store.ErrNotFound,
			"not found in the account",
		},
		{
			store.Deployment{Account: account, Name: "a", Connectors: []string{c.ID, "two"}},
			store.ErrNotFound,
			`connector "two" not found`,
		},
		{
			store.Deployment{Account: account, Name: "a", Connectors: []string{"two"}},
			store.ErrNotFound,
			`connector "two" not found`,
		},
		{
			store.Deployment{Account: account, Name: "a", Connectors: []string{"con_" + strings.Repeat("0", 26)}},
			store.ErrNotFound, "not found in the account",
		},
		{store.Deployment{Account: "nobody", Name: "a", Connectors: []string{c.ID}}, store.ErrNotFound, "unknown account"},
	} {
		wantError(t, errOf(s.SetDeployment(t.Context(), x.d)), x.kind, x.part)
	}
	for _, name := range []string{"a", "b"} {
		must(t, errOf(s.SetDeployment(t.Context(),
			store.Deployment{Account: account, Name: name, Connectors: []string{c.ID}})))
	}
	wantError(t, errOf(s.RemoveConnector(t.Context(), account, "one")), store.ErrInUse, `"one" is in use by a, b`)
	for _, name := range []string{"c", "d", "e", "f", "g"} {
		must(t, errOf(s.SetDeployment(t.Context(),
			store.Deployment{Account: account, Name: name, Connectors: []string{c.ID}})))
	}
	_, err := s.RemoveConnector(t.Context(), account, "one")
	wantError(t, err, store.ErrInUse, `"one" is in use by a, b, c, d, e and 2 more: `)
	for _, name := range []string{"c", "d", "e", "f", "g"} {
		must(t, errOf(s.RemoveDeployment(t.Context(), account, name)))
	}
	_, err = s.RemoveDeployment(t.Context(), account+"/a", "b")
	wantError(t, err, store.ErrNotFound, "not found in the account")
	for _, name := range []string{"a", "b"} {
		if d, err := s.RemoveDeployment(t.Context(), account, name); err != nil || d.Name != name {
			t.Errorf("removed %+v, %v", d, err)
		}
		_, err := s.RemoveDeployment(t.Context(), account, name)
		wantError(t, err, store.ErrNotFound, "not found in the account")
	}
	if _, err := s.RemoveConnector(t.Context(), account, "one"); err != nil {
		t.Error(err)
	}
}

// A connector is removed while deployments begin to use it: no deployment ever has a connector
// that does not exist.
func TestRemoveConnectorConcurrent(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	for i := range 15 {
		c, _, err := s.CreateConnector(t.Context(), account, fmt.Sprintf("c%d", i))
		must(t, err)
		other, _, err := s.CreateConnector(t.Context(), account, fmt.Sprintf("other%d", i))
		must(t, err)
		var wg sync.WaitGroup
		for j := range 3 {
			wg.Go(func() {
				_, err := s.SetDeployment(t.Context(),
					store.Deployment{Account: account, Name: fmt.Sprintf("d%d-%d", i, j), Connectors: []string{other.ID, c.ID}})
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if _, err := s.RemoveConnector(t.Context(), account, c.ID); err != nil && !errors.Is(err, store.ErrInUse) {
				t.Error(err)
			}
		})
		wg.Wait()
	}
	for _, d := range s.Deployments(account) {
		for _, id := range d.Connectors {
			if _, ok := s.Connector(id); !ok {
				t.Errorf("deployment %s points to nothing", d.Name)
			}
		}
	}
}
