package store_test

import (
	"encoding/json"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// A machine that is paired again keeps its id, name and deployments. Its old secret ends.
func TestReplaceConnector(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := newClock().open(t, path)
	_, code := mustPairing(t, s)
	mustClaim(t, s, code, 1)
	if got, ok := s.Namesake(account, store.Device{Hostname: "gpu"}); ok {
		t.Errorf("before there is one, the namesake is %+v", got)
	}
	_, before, err := s.ApprovePairing(t.Context(), account, code, "", "Ann")
	must(t, err)
	must(t, errOf(s.SetDeployment(t.Context(),
		store.Deployment{Account: account, Name: "m", Connectors: []string{before.ID}})))
	if got, ok := s.Namesake(account, store.Device{Hostname: "gpu"}); !ok || got != before {
		t.Errorf("the namesake is %+v", got)
	}

	again, code := mustPairing(t, s)
	_, _, err = s.ReplaceConnector(t.Context(), account, code, "gpu", "Ann")
	wantError(t, err, store.ErrConflict, "no device is waiting")
	mustClaim(t, s, code, 2)
	for _, other := range []string{"", "nosuch", "con_nosuch", again.ID} {
		_, _, err = s.ReplaceConnector(t.Context(), account, code, other, "Ann")
		wantError(t, err, store.ErrNotFound, "not found in the account")
	}
	p, after, err := s.ReplaceConnector(t.Context(), account, code, "gpu", "Ann")
	if err != nil || p.State != store.PairingApproved || p.Connector != before.ID || !p.Replaced || p.DecidedBy != "Ann" {
		t.Fatalf("replaced: %+v, %v", p, err)
	}
	if after.ID != before.ID || after.Name != "gpu" || !after.CreatedAt.Equal(before.CreatedAt) ||
		after.Pairing != again.ID || before.Pairing == again.ID {
		t.Errorf("it was %+v, and is %+v", before, after)
	}
	s = newClock().open(t, closed(t, s, path))
	if got, err := s.AuthenticateConnector(before.ID, deviceSecret(2)); err != nil || got != after {
		t.Errorf("the new device's secret is not the connector's: %v", err)
	}
	_, err = s.AuthenticateConnector(before.ID, deviceSecret(1))
	wantError(t, err, store.ErrUnauthenticated, "invalid tunnel token")
	if d, ok := s.Deployment(account, "m"); !ok || d.Connectors[0] != before.ID || len(s.Connectors(account)) != 1 {
		t.Errorf("the deployment leads to %v of %v", d.Connectors, s.Connectors(account))
	}
	_, _, err = s.ReplaceConnector(t.Context(), account, code, "gpu", "bob")
	wantError(t, err, store.ErrConflict, `already approved by "Ann"`)
}

// A replacement also invalidates the token of a connector. Connectors of other accounts cannot be
// replaced.
func TestReplaceConnectorOfAToken(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	must(t, errOf(s.CreateAccount(t.Context(), "other")))
	foreign, foreignSecret, err := s.CreateConnector(t.Context(), "other", "theirs")
	must(t, err)
	c, secret, err := s.CreateConnector(t.Context(), account, "rack")
	must(t, err)
	_, code := mustPairing(t, s)
	mustClaim(t, s, code, 1)
	for _, name := range []string{"theirs", foreign.ID} {
		_, _, err = s.ReplaceConnector(t.Context(), account, code, name, "Ann")
		wantError(t, err, store.ErrNotFound, "not found in the account")
	}
	if _, err := s.AuthenticateConnector(foreign.ID, foreignSecret); err != nil {
		t.Errorf("the other account's connector: %v", err)
	}
	must(t, errOf(s.ReplaceConnector(t.Context(), account, code, c.ID, "Ann")))
	wantError(t, errOf(s.AuthenticateConnector(c.ID, secret)), store.ErrUnauthenticated, "invalid tunnel token")
	got, ok := s.Connector(c.ID)
	text, err := json.Marshal(got)
	if err != nil || !ok || got.Name != "rack" || got.Pairing == "" {
		t.Errorf("the connector is %s, %v", text, err)
	}
}

// Two devices replace the same connector concurrently: both pairings are approved, one after the
// other, and the last device has the connector.
func TestReplaceIsOvertaken(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, tempStore(t))
	other := newStore(t, share(kv))
	c, _, err := other.CreateConnector(t.Context(), account, "rack")
	must(t, err)
	_, first := mustPairing(t, other)
	_, second := mustPairing(t, other)
	mustClaim(t, other, first, 1)
	mustClaim(t, other, second, 2)
	s := newStore(t, &overtakenKV{KV: share(kv), key: "connectors/default/" + c.ID, others: func() {
		if _, _, err := other.ReplaceConnector(t.Context(), account, first, c.ID, "bob"); err != nil {
			t.Error(err)
		}
	}})
	must(t, errOf(s.ReplaceConnector(t.Context(), account, second, c.ID, "Ann")))
	if _, err := s.AuthenticateConnector(c.ID, deviceSecret(2)); err != nil {
		t.Errorf("the last one has the place: %v", err)
	}
	_, err = s.AuthenticateConnector(c.ID, deviceSecret(1))
	wantError(t, err, store.ErrUnauthenticated, "invalid tunnel token")
}
