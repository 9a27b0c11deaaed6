package store_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	if err != nil {
		t.Fatal(err)
	}
	return c, secret
}

func mustOffer(t *testing.T, s *store.Store, id string) store.Offer {
	t.Helper()
	o, err := s.OfferSecret(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// All secrets are valid from their offer until the connector confirms one of them, across restarts.
// Then that one and later offers are valid.
func TestRotation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := storetest.Open(t, path)
	c, old := mustConnector(t, s, "box")
	other, otherSecret := mustConnector(t, s, "other")
	if _, err := s.OfferSecret(t.Context(), c.ID); err == nil {
		t.Error("a secret is offered though nobody asked for a rotation")
	}
	begun, err := s.BeginRotation(t.Context(), account, "box")
	if err != nil || begun.ID != c.ID || begun.Rotation == nil || begun.Rotation.Since.IsZero() || begun.Rotation.ByHand {
		t.Fatalf("begun %+v, %v", begun, err)
	}
	first := mustOffer(t, s, c.ID)
	s = reopen(t, s, path)
	second := mustOffer(t, s, c.ID)
	letsIn(t, s, c.ID, map[string]bool{
		old: true, first.Secret: true, second.Secret: true, otherSecret: false, "": false,
		strings.Repeat("0", 43): false,
	})
	letsIn(t, s, other.ID, map[string]bool{first.Secret: false, otherSecret: true})
	number := s.OfferNumber
	if number(c.ID, old) != 0 || number(c.ID, first.Secret) != 1 || number(c.ID, second.Secret) != 2 ||
		number(other.ID, first.Secret) != 0 || number("con_x", first.Secret) != 0 {
		t.Error("the secrets are not distinguished")
	}
	for _, unknown := range []int64{-1, 0, 3} {
		if _, done, err := s.FinishRotation(t.Context(), c.ID, unknown); done || err != nil {
			t.Errorf("the number %d finishes it: %v, %v", unknown, done, err)
		}
	}
	for range 2 { // the second time it is outdated
		finished, done, err := s.FinishRotation(t.Context(), c.ID, first.Number)
		if err != nil || done && (finished.Rotation != nil || finished.RotatedAt == nil) {
			t.Fatalf("finished %+v, %v, %v", finished, done, err)
		}
		s = reopen(t, s, path)
		letsIn(t, s, c.ID, map[string]bool{old: false, first.Secret: true, second.Secret: true})
		if got, _ := s.Connector(c.ID); got.Rotation != nil || got.RotatedAt == nil || got.Name != "box" {
			t.Errorf("afterwards %+v", got)
		}
	}
	if _, done, err := s.FinishRotation(t.Context(), c.ID, second.Number); !done || err != nil {
		t.Fatal(done, err)
	}
	letsIn(t, s, c.ID, map[string]bool{old: false, first.Secret: false, second.Secret: true})
	content, err := os.ReadFile(path)
	for _, secret := range []string{old, first.Secret, second.Secret} {
		if err != nil || strings.Contains(string(content), secret) {
			t.Errorf("the file holds a secret itself, or %v", err)
		}
	}
}

func TestRotationByHand(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	c, old := mustConnector(t, s, "box")
	if _, err := s.BeginRotation(t.Context(), account, c.ID); err != nil {
		t.Fatal(err)
	}
	offered := mustOffer(t, s, c.ID)
	if err := s.FailRotation(t.Context(), c.ID, "it is read-only\x1b[2J"); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.Connector(c.ID); got.Rotation.Problem != "it is read-only[2J" {
		t.Errorf("the problem is %q", got.Rotation.Problem)
	}
	_, lost, err := s.ShowSecret(t.Context(), account, "box")
	if err != nil {
		t.Fatal(err)
	}
	now, shown, err := s.ShowSecret(t.Context(), account, c.ID)
	if err != nil || !now.Rotation.ByHand || now.Rotation.Problem != "" || shown.Number != 3 {
		t.Fatalf("%+v, %d, %v", now, shown.Number, err)
	}
	letsIn(t, s, c.ID, map[string]bool{old: true, offered.Secret: true, lost.Secret: false, shown.Secret: true})
	if _, err := s.OfferSecret(t.Context(), c.ID); err == nil {
		t.Error("a secret is offered on the tunnel of a connector that gets one by hand")
	}
	// An answer that is late changes nothing of what a person does.
	if err := s.FailRotation(t.Context(), c.ID, "late"); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.Connector(c.ID); got.Rotation.Problem != "" {
		t.Errorf("a late answer is noted: %q", got.Rotation.Problem)
	}
	// A late answer to the offer does not take the shown one away.
	for _, o := range []store.Offer{offered, shown} {
		if _, done, err := s.FinishRotation(t.Context(), c.ID, o.Number); !done || err != nil {
			t.Fatal(done, err)
		}
		letsIn(t, s, c.ID, map[string]bool{old: false, offered.Secret: o == offered, lost.Secret: false, shown.Secret: true})
	}
}

// A gateway that offers a secret after each of many restarts does not fill its store. The last offers
// stay valid.
func TestRotationIsBounded(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	c, old := mustConnector(t, s, "box")
	if _, err := s.BeginRotation(t.Context(), account, c.ID); err != nil {
		t.Fatal(err)
	}
	var offers []string
	for range 10 {
		offers = append(offers, mustOffer(t, s, c.ID).Secret)
	}
	want := map[string]bool{old: true}
	for i, secret := range offers {
		want[secret] = i >= 6
	}
	letsIn(t, s, c.ID, want)
}

func TestRotationErrors(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	_, err := s.BeginRotation(t.Context(), account, "nobody")
	wantError(t, err, store.ErrNotFound, `connector "nobody" not found`)
	_, _, err = s.ShowSecret(t.Context(), account, "nobody")
	wantError(t, err, store.ErrNotFound, `connector "nobody" not found`)
	_, _, err = s.FinishRotation(t.Context(), "con_gone", 1)
	wantError(t, err, store.ErrNotFound, `connector "con_gone" not found`)
	c, old := mustConnector(t, s, "box")
	if err := s.FailRotation(t.Context(), c.ID, "there is none"); err != nil {
		t.Error(err)
	}
	if got, _ := s.Connector(c.ID); got.Rotation != nil {
		t.Errorf("a failure began a rotation: %+v", got.Rotation)
	}
	letsIn(t, s, c.ID, map[string]bool{old: true})
}

// Subscribers get the changes that they act on.
func TestRotationIsTold(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	c, _ := mustConnector(t, s, "box")
	var reported []string
	stop := s.Subscribe(func(change store.Change) {
		now, _ := s.Connector(change.ID)
		reported = append(reported, fmt.Sprint(change.Kind, " ", now.Rotation != nil, " ", now.RotatedAt != nil))
	})
	defer stop()
	for range 2 {
		if _, err := s.BeginRotation(t.Context(), account, c.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.FinishRotation(t.Context(), c.ID, mustOffer(t, s, c.ID).Number); err != nil {
		t.Fatal(err)
	}
	want := "connector true false, connector true false, connector true false, connector false true"
	if got := strings.Join(reported, ", "); got != want {
		t.Errorf("reported %s\nwant %s", got, want)
	}
}
