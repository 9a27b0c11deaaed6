package store_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// letsIn checks that exactly these secrets of a connector are valid.
func letsIn(t *testing.T, s *store.Store, id string, secrets map[string]bool) {
	t.Helper()
	for secret, want := range secrets {
		if _, err := s.AuthenticateConnector(id, secret); (err == nil) != want {
			t.Errorf("the secret %.4s… is let in: %v, want %v (%v)", secret, err == nil, want, err)
		}
		hash := sha256.Sum256([]byte(secret))
		if got := s.MatchConnector(id, func(h []byte) bool { return bytes.Equal(h, hash[:]) }); got != want {
			t.Errorf("the hash of the secret %.4s… matches: %v", secret, got)
		}
	}
}

func mustConnector(t *testing.T, s *store.Store, name string) (store.Connector, string) {
	t.Helper()
	c, secret, err := s.CreateConnector(t.Context(), account, name)
	must(t, err)
	return c, secret
}

func mustRotate(t *testing.T, s *store.Store, idOrName string, grace time.Duration) (store.Connector, string) {
	t.Helper()
	c, secret, err := s.RotateConnector(t.Context(), account, idOrName, grace)
	must(t, err)
	return c, secret
}

// Without grace, the old secret ends at once, also after a restart.
func TestRotateConnector(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := storetest.Open(t, path)
	c, old := mustConnector(t, s, "box")
	_, otherSecret := mustConnector(t, s, "other")
	rotated, secret := mustRotate(t, s, "box", 0)
	if rotated.ID != c.ID || rotated.RotatedAt == nil || rotated.PreviousUntil == nil ||
		!rotated.PreviousUntil.Equal(*rotated.RotatedAt) {
		t.Errorf("rotated: %+v", rotated)
	}
	for range 2 {
		letsIn(t, s, c.ID, map[string]bool{
			old: false, secret: true, otherSecret: false, "": false, strings.Repeat("0", 43): false,
		})
		if _, err := s.AuthenticateConnector(c.ID, old); !errors.Is(err, store.ErrRotated) {
			t.Errorf("the old secret: %v", err)
		}
		if _, err := s.AuthenticateConnector(c.ID, otherSecret); !errors.Is(err, store.ErrUnauthenticated) {
			t.Errorf("another one: %v", err)
		}
		s = reopen(t, s, path)
	}
	content, err := os.ReadFile(path)
	for _, secret := range []string{old, secret} {
		if err != nil || strings.Contains(string(content), secret) {
			t.Errorf("the file has a secret itself, or %v", err)
		}
	}
}

// Without grace, the old secret ends at a gateway, too, whose clock is behind.
func TestRotateConnectorWithASlowClock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := storetest.Open(t, path)
	c, old := mustConnector(t, s, "box")
	_, secret := mustRotate(t, s, c.ID, 0)
	must(t, s.Close())
	slow := func() time.Time { return time.Now().Add(-time.Hour) }
	s = storetest.OpenWith(t, path, store.Options{Now: slow})
	letsIn(t, s, c.ID, map[string]bool{old: false, secret: true})
	if _, err := s.AuthenticateConnector(c.ID, old); !errors.Is(err, store.ErrRotated) {
		t.Errorf("the old secret: %v", err)
	}
}

// With grace, both secrets are valid until its end. Another rotation ends the oldest at once.
func TestRotateConnectorWithGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storetest.New(t)
		c, first := mustConnector(t, s, "box")
		_, second := mustRotate(t, s, c.ID, time.Hour)
		letsIn(t, s, c.ID, map[string]bool{first: true, second: true})
		if _, until, err := s.CheckConnector(c.ID, store.SecretHash(first)); err != nil || time.Until(until) != time.Hour {
			t.Errorf("the old secret is valid until %v, %v", until, err)
		}
		if _, until, err := s.CheckConnector(c.ID, store.SecretHash(second)); err != nil || !until.IsZero() {
			t.Errorf("the new secret is valid until %v, %v", until, err)
		}
		time.Sleep(time.Hour - time.Nanosecond)
		letsIn(t, s, c.ID, map[string]bool{first: true, second: true})
		time.Sleep(time.Nanosecond)
		letsIn(t, s, c.ID, map[string]bool{first: false, second: true})
		_, third := mustRotate(t, s, c.ID, time.Hour)
		_, fourth := mustRotate(t, s, c.ID, time.Minute)
		letsIn(t, s, c.ID, map[string]bool{first: false, second: false, third: true, fourth: true})
	})
}

func TestRotateConnectorFails(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	c, secret := mustConnector(t, s, "box")
	for _, grace := range []time.Duration{-1, store.MaxGrace + 1} {
		if _, _, err := s.RotateConnector(t.Context(), account, c.ID, grace); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("a grace of %v: %v", grace, err)
		}
	}
	for owner, name := range map[string]string{account: "unknown", "stranger": c.ID} {
		if _, _, err := s.RotateConnector(t.Context(), owner, name, 0); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s of %s: %v", name, owner, err)
		}
	}
	letsIn(t, s, c.ID, map[string]bool{secret: true})
}

// Subscribers get the change of the identity before the write returns, and other stores on the
// same file read it.
func TestReplaceIdentity(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := storetest.Open(t, path)
	var changes []store.Change
	defer s.Subscribe(func(c store.Change) { changes = append(changes, c) })()
	if key := s.Identity(); key != nil {
		t.Errorf("before it was created: %q", key)
	}
	created, err := s.Secret(t.Context(), store.SecretIdentity, func() ([]byte, error) { return []byte("one"), nil })
	if err != nil || string(created) != "one" || string(s.Identity()) != "one" || len(changes) != 1 {
		t.Errorf("created %q, the view has %q, changes %v, %v", created, s.Identity(), changes, err)
	}
	must(t, s.ReplaceIdentity(t.Context(), []byte("two")))
	if string(s.Identity()) != "two" || len(changes) != 2 || changes[1].Kind != store.KindIdentity {
		t.Errorf("the view has %q, changes %v", s.Identity(), changes)
	}
	s = reopen(t, s, path)
	if string(s.Identity()) != "two" || len(changes) != 2 {
		t.Errorf("after a restart: %q, changes %v", s.Identity(), changes)
	}
}
