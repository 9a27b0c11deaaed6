package store_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

func mustPairing(t testing.TB, s *store.Store) (store.Pairing, string) {
	t.Helper()
	p, code, err := s.CreatePairing(t.Context(), account, "Ann")
	must(t, err)
	return p, code
}

func mustClaim(t testing.TB, s *store.Store, code string, device int) store.Pairing {
	t.Helper()
	p, err := s.ClaimPairing(t.Context(), code, deviceSecret(device),
		store.Device{Hostname: "gpu", OS: "linux", Upstreams: []string{"ollama"}})
	must(t, err)
	return p
}

func TestPairing(t *testing.T) {
	t.Parallel()
	c := newClock()
	path := tempStore(t)
	s := c.open(t, path)
	p, code := mustPairing(t, s)
	if !regexp.MustCompile(`^PAIR-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}$`).MatchString(code) {
		t.Errorf("the code is %q", code)
	}
	if p.State != store.PairingWaiting || p.Device != nil || p.DecidedAt != nil || p.CreatedBy != "Ann" ||
		p.ExpiresAt.Sub(p.CreatedAt) != store.PairingLife {
		t.Errorf("created %+v", p)
	}
	_, _, err := s.ApprovePairing(t.Context(), account, code, "", "Ann")
	wantError(t, err, store.ErrConflict, "no device is waiting")
	c.advance(time.Minute)
	claimed := mustClaim(t, s, strings.ToLower(code[5:]), 1)
	if claimed.State != store.PairingPending || claimed.Device.Hostname != "gpu" || !claimed.Device.At.Equal(c.now()) {
		t.Errorf("claimed %+v", claimed)
	}
	s = c.open(t, closed(t, s, path))
	if got, ok := s.Pairing(account, code); !ok || got.ID != p.ID || got.State != store.PairingPending {
		t.Errorf("pairing %+v", got)
	}
	approved, connector, err := s.ApprovePairing(t.Context(), account, p.ID, "", "Ann")
	if err != nil || approved.State != store.PairingApproved || approved.Connector != connector.ID ||
		approved.DecidedBy != "Ann" || !approved.DecidedAt.Equal(c.now()) {
		t.Fatalf("approved %+v, %v", approved, err)
	}
	if connector.Name != "gpu" || connector.Account != account {
		t.Errorf("connector %+v", connector)
	}
	s = c.open(t, closed(t, s, path))
	if got, err := s.AuthenticateConnector(connector.ID, deviceSecret(1)); err != nil || got != connector {
		t.Errorf("the device's secret is not the connector's: %v", err)
	}
	c.advance(time.Hour)
	if again := mustClaim(t, s, code, 1); again.State != store.PairingApproved || again.Connector != connector.ID {
		t.Errorf("claimed again: %+v", again)
	}
	wantError(t, errOf(s.ClaimPairing(t.Context(), code, deviceSecret(2), store.Device{})), store.ErrUsed)
	_, _, err = s.ApprovePairing(t.Context(), account, code, "", "bob")
	wantError(t, err, store.ErrConflict, `already approved by "Ann"`)
	wantError(t, errOf(s.DenyPairing(t.Context(), account, code, "bob")), store.ErrConflict, "already approved")
	if got := s.Pairings(account); len(got) != 1 || got[0].State != store.PairingApproved || s.Pairings("other") != nil {
		t.Errorf("pairings %+v", got)
	}
}

func TestClaimErrors(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	p, code := mustPairing(t, s)
	claim := func(code, secret string) error {
		_, err := s.ClaimPairing(t.Context(), code, secret, store.Device{})
		if err != nil && (len(code) > 4 && strings.Contains(err.Error(), code) ||
			len(secret) > 4 && strings.Contains(err.Error(), secret)) {
			t.Errorf("the error has the code or the secret: %v", err)
		}
		return err
	}
	for _, wrong := range []string{"", "PAIR-0000-0000", code[:13], p.ID, "nonsense", code + "0"} {
		wantError(t, claim(wrong, deviceSecret(1)), store.ErrUnauthenticated)
	}
	for _, wrong := range []string{
		"", "short", deviceSecret(1) + "0", "!" + deviceSecret(1)[1:],
		"é" + deviceSecret(1)[2:],
	} {
		wantError(t, claim(code, wrong), store.ErrInvalid, "43 letters and digits")
	}
	mustClaim(t, s, code, 1)
	wantError(t, claim(code, deviceSecret(2)), store.ErrUsed)
	must(t, errOf(s.DenyPairing(t.Context(), account, code, "Ann")))
	wantError(t, claim(code, deviceSecret(2)), store.ErrDenied)
	if again := mustClaim(t, s, code, 1); again.State != store.PairingDenied || again.DecidedBy != "Ann" {
		t.Errorf("the device that was denied learns %+v", again)
	}

	_, canceled := mustPairing(t, s)
	if p, err := s.DenyPairing(t.Context(), account, canceled, "Ann"); err != nil || p.State != store.PairingDenied {
		t.Errorf("canceled %+v, %v", p, err)
	}
	wantError(t, claim(canceled, deviceSecret(1)), store.ErrDenied)
}

func TestPairingExpires(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := c.open(t, tempStore(t))
	claim := func(code, secret string) error {
		_, err := s.ClaimPairing(t.Context(), code, secret, store.Device{})
		return err
	}
	_, unused := mustPairing(t, s)
	_, pending := mustPairing(t, s)
	mustClaim(t, s, pending, 3)
	c.advance(store.PairingLife - time.Millisecond)
	if p, _ := s.Pairing(account, unused); p.State != store.PairingWaiting {
		t.Errorf("just before its end: %s", p.State)
	}
	c.advance(time.Millisecond)
	wantError(t, claim(unused, deviceSecret(1)), store.ErrExpired)
	wantError(t, claim(pending, deviceSecret(4)), store.ErrExpired)
	if again := mustClaim(t, s, pending, 3); again.State != store.PairingExpired {
		t.Errorf("the device that waited too long learns %s", again.State)
	}
	for _, code := range []string{unused, pending} {
		if p, _ := s.Pairing(account, code); p.State != store.PairingExpired {
			t.Errorf("after its end: %s", p.State)
		}
		_, _, err := s.ApprovePairing(t.Context(), account, code, "", "Ann")
		wantError(t, err, store.ErrExpired, "start a new pairing")
		wantError(t, errOf(s.DenyPairing(t.Context(), account, code, "Ann")), store.ErrExpired)
	}
	if len(s.Connectors(account)) != 0 {
		t.Errorf("connectors %+v", s.Connectors(account))
	}
}

func TestPairingOfOtherAccount(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	must(t, errOf(s.CreateAccount(t.Context(), "other")))
	p, code := mustPairing(t, s)
	mustClaim(t, s, code, 1)
	for _, given := range []string{p.ID, code} {
		if _, ok := s.Pairing("other", given); ok {
			t.Error("another account sees the pairing")
		}
		_, _, err := s.ApprovePairing(t.Context(), "other", given, "", "eve")
		wantError(t, err, store.ErrNotFound, "pairing was not found")
		_, err = s.DenyPairing(t.Context(), "other", given, "eve")
		wantError(t, err, store.ErrNotFound, "pairing was not found")
	}
	if p, _ := s.Pairing(account, code); p.State != store.PairingPending || len(s.Connectors("other")) != 0 {
		t.Errorf("the pairing is %+v", p)
	}
}

func TestDeviceIsBounded(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	_, code := mustPairing(t, s)
	long := strings.Repeat("x", 1<<16)
	p, err := s.ClaimPairing(t.Context(), code, deviceSecret(1), store.Device{
		Hostname: long, OS: long, Version: long, Address: "2001:db8::1", Fingerprint: "3f9a 07c2 b1d4",
		Upstreams: slices.Repeat([]string{long}, 1000),
	})
	must(t, err)
	text, _ := json.Marshal(p)
	if len(text) > 16<<10 || p.Device.Address != "2001:db8::1" || p.Device.Fingerprint != "3f9a 07c2 b1d4" {
		t.Errorf("%d bytes, %s, %s", len(text), p.Device.Address, p.Device.Fingerprint)
	}
}

func TestOpenPairingsAreBounded(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := c.open(t, tempStore(t))
	must(t, errOf(s.CreateAccount(t.Context(), "other")))
	var made atomic.Int32
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() {
			_, _, err := s.CreatePairing(t.Context(), account, "Ann")
			if err == nil {
				made.Add(1)
			} else {
				wantError(t, err, store.ErrConflict)
			}
		})
	}
	wg.Wait()
	for made.Load() < 20 {
		mustPairing(t, s) // others were faster twenty times
		made.Add(1)
	}
	if n := len(s.Pairings(account)); n != 20 {
		t.Errorf("there are %d pairings", n)
	}
	_, _, err := s.CreatePairing(t.Context(), account, "Ann")
	wantError(t, err, store.ErrConflict, "20 open pairings")
	if _, _, err := s.CreatePairing(t.Context(), "other", "bob"); err != nil {
		t.Errorf("another account: %v", err)
	}
	must(t, errOf(s.DenyPairing(t.Context(), account, s.Pairings(account)[0].ID, "Ann")))
	mustPairing(t, s)
	c.advance(store.PairingLife)
	mustPairing(t, s)
	wantError(t, errOf(s.CreatePairing(t.Context(), "nobody", "Ann")), store.ErrNotFound, "unknown account")
}

// Of the devices that use a code concurrently, one gets it.
func TestClaimConcurrent(t *testing.T) {
	t.Parallel()
	kv := storetest.OpenBolt(t, tempStore(t))
	stores := [2]*store.Store{newStore(t, share(kv)), newStore(t, share(kv))}
	for range 10 {
		p, code := mustPairing(t, stores[0])
		wait.Until(t, "both know the code", func() bool { _, ok := stores[1].Pairing(account, code); return ok })
		var winner atomic.Int32
		var wg sync.WaitGroup
		for i := range 8 {
			device := i/2 + 1 // each comes twice
			wg.Go(func() {
				_, err := stores[i%2].ClaimPairing(t.Context(), code, deviceSecret(device), store.Device{})
				switch {
				case err == nil:
					if old := winner.Swap(int32(device)); old != 0 && old != int32(device) {
						t.Error("two devices have the code")
					}
				case !errors.Is(err, store.ErrUsed):
					t.Errorf("claim: %v", err)
				}
			})
		}
		wg.Wait()
		if winner.Load() == 0 {
			t.Error("no device has the code")
		}
		_, c, err := stores[1].ApprovePairing(t.Context(), account, p.ID, "", "Ann")
		must(t, err)
		if _, err := stores[1].AuthenticateConnector(c.ID, deviceSecret(int(winner.Load()))); err != nil {
			t.Errorf("the winner cannot connect: %v", err)
		}
	}
}
