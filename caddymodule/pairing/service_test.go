package pairing_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/pairing"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/storetest"
)

func TestApproved(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, code := b.start()
		ticket := b.claim(device(code, "box"))
		if ticket.ID != p.ID || !ticket.ExpiresAt.Equal(p.ExpiresAt) ||
			ticket.Fingerprint != link.Fingerprint(pin, secret("box")) {
			b.Errorf("ticket %+v of the pairing %+v", ticket, p)
		}
		got, ok := b.store.Pairing(account, p.ID)
		if !ok || got.State != store.PairingPending || got.Device == nil {
			b.Fatalf("claimed: %+v, %v", got, ok)
		}
		if d := *got.Device; d.Hostname != "box" || d.Address != "192.0.2.1" || d.Fingerprint != ticket.Fingerprint ||
			d.OS != "linux/amd64" || d.Version != "1.0.0" || len(d.Upstreams) != 1 {
			b.Errorf("the device is stored as %+v", d)
		}
		if !b.connected(p.ID) {
			b.Error("the device is not connected")
		}
		b.undecided(ticket)
		approved := b.approve(code)
		want, _ := token(approved.Connector, secret("box"))
		if got := b.decision(ticket); got.TunnelToken != want || got.Deny != nil {
			b.Errorf("decided %+v, not %q", got, want)
		}
		if b.connected(p.ID) {
			b.Error("the device still waits")
		}
		ticket.Release()
		// The grant may have been lost: the device asks again, even after its code has
		// expired.
		time.Sleep(store.PairingLife + time.Minute)
		if got := b.decision(b.claim(device(code, "box"))); got.TunnelToken != want {
			b.Errorf("decided %+v when asked again", got)
		}
		b.refused(device(code, "other"), link.DenyPairingUsed)
	})
}

// Each end of a code has its own refusals: for the waiting device, for the same device after a
// reconnection, and for another device.
func TestRefusals(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, code := b.start()
		waiting := b.claim(device(code, "box"))
		b.refused(device(code, "other"), link.DenyPairingUsed)
		b.deny(p.ID)
		b.denied(b.decision(waiting).Deny, link.DenyPairingDenied)
		again, deny := b.service.Claim(context.Background(), device(code, "box"))
		if deny == nil {
			deny = b.decision(again).Deny
		}
		b.denied(deny, link.DenyPairingDenied)

		p, code = b.start()
		b.deny(p.ID) // called off
		b.refused(device(code, "box"), link.DenyPairingDenied)

		_, code = b.start()
		time.Sleep(store.PairingLife + time.Second)
		b.refused(device(code, "box"), link.DenyPairingExpired)

		b.refused(device("PAIR-ZZZZ-ZZZZ", "box"), link.DenyPairingUnknown)
		b.refused(device("what?", "box"), link.DenyPairingUnknown)
	})
}

func TestExpiresWhileWaiting(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, code := b.start()
		ticket := b.claim(device(code, "box"))
		time.Sleep(store.PairingLife - time.Second)
		synctest.Wait()
		b.undecided(ticket)
		if got := b.code(p.ID); got != code {
			b.Errorf("the code is %q", got)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		deny := b.decision(ticket).Deny
		b.denied(deny, link.DenyPairingExpired)
		if deny.Retry {
			b.Error("the device is asked to retry with the same code")
		}
		if got := b.code(p.ID); got != "" || b.connected(p.ID) {
			b.Errorf("the code is still shown, as %q, or its device as connected", got)
		}
		b.refused(device(code, "box"), link.DenyPairingExpired)
	})
}

// When the clock is set back, a code expires by the new time.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var back time.Duration
		now := func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(-back)
		}
		st, err := store.New(storetest.OpenBolt(t, path), store.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{
			T: t, store: st,
			service: pairing.New(pairing.Options{Store: st, Token: token, Pin: func() string { return pin }, Now: now}),
		}
		defer b.close()
		_, code := b.start()
		ticket := b.claim(device(code, "box"))
		mu.Lock()
		back = 10 * time.Minute
		mu.Unlock()
		time.Sleep(store.PairingLife + 5*time.Second)
		synctest.Wait()
		b.undecided(ticket)
		time.Sleep(back)
		synctest.Wait()
		b.denied(b.decision(ticket).Deny, link.DenyPairingExpired)
	})
}

func TestNewerTicketReplaces(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, code := b.start()
		old := b.claim(device(code, "box"))
		next := b.claim(device(code, "box"))
		b.sentBack(old)
		old.Release() // late, as its connection ends
		if !b.connected(p.ID) {
			b.Fatal("the older ticket's release has taken the newer one's place")
		}
		b.approve(p.ID)
		if b.decision(next).TunnelToken == "" {
			b.Error("no token")
		}
	})
}

// Subscribers are called when a device of an account connects and disconnects.
func TestSubscribe(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, code := b.start()
		var seen []bool
		stop := b.service.Subscribe(func(of string) {
			if of != account {
				b.Errorf("notified of the account %q", of)
			}
			seen = append(seen, b.connected(p.ID))
		})
		ticket := b.claim(device(code, "box"))
		ticket.Release()
		if len(seen) != 2 || !seen[0] || seen[1] {
			b.Errorf("when notified, the device was connected: %v", seen)
		}
		stop()
		b.claim(device(code, "box")).Release()
		if len(seen) != 2 {
			b.Error("notified after the end of the subscription")
		}
	})
}

func TestRelease(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, code := b.start()
		ticket := b.claim(device(code, "box"))
		ticket.Release()
		ticket.Release()
		if b.connected(p.ID) {
			b.Error("the device is still connected")
		}
		b.approve(p.ID)
		time.Sleep(store.PairingLife + time.Minute)
		synctest.Wait()
		b.undecided(ticket)
	})
}

// Close disconnects devices, which reconnect to the next service with the same code: one that was
// pending, and one that was approved meanwhile.
func TestRestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	b := newBench(t, path)
	pending, pendingCode := b.start()
	approved, approvedCode := b.start()
	first := b.claim(device(pendingCode, "first"))
	second := b.claim(device(approvedCode, "second"))
	b.service.Close()
	b.sentBack(first)
	b.sentBack(second)
	if deny := b.refused(device(pendingCode, "first"), link.DenyShutdown); !deny.Retry {
		b.Error("the device is not asked to retry")
	}
	b.approve(approved.ID)
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}

	b = newBench(t, path)
	defer b.close()
	if got := b.code(pending.ID); got != pendingCode {
		t.Errorf("the code is %q after a restart", got)
	}
	first = b.claim(device(pendingCode, "first"))
	if first.ID != pending.ID || !first.ExpiresAt.Equal(pending.ExpiresAt) {
		t.Errorf("the device comes back as %+v", first)
	}
	b.undecided(first)
	if got := b.decision(b.claim(device(approvedCode, "second"))).TunnelToken; !strings.HasSuffix(got,
		"/"+secret("second")) {
		t.Errorf("token %q", got)
	}
	b.approve(pending.ID)
	if got := b.decision(first).TunnelToken; !strings.HasSuffix(got, "/"+secret("first")) {
		t.Errorf("token %q", got)
	}
}

func TestTokenFails(t *testing.T) {
	t.Parallel()
	st := storetest.New(t)
	broken := true
	service := pairing.New(pairing.Options{
		Store: st, Pin: func() string { return pin },
		Token: func(id, secret string) (string, error) {
			if broken {
				return "", errors.New("no address")
			}
			return token(id, secret)
		},
	})
	b := &bench{T: t, store: st, service: service}
	defer b.close()
	p, code := b.start()
	ticket := b.claim(device(code, "box"))
	b.approve(p.ID)
	deny := b.decision(ticket).Deny
	b.denied(deny, link.DenyUnavailable)
	if !deny.Retry {
		t.Error("the device is not asked to retry")
	}
	broken = false
	if b.decision(b.claim(device(code, "box"))).TunnelToken == "" {
		t.Error("no token")
	}
}

// Claims that reveal nothing about their code never count as wrong: canceled ones, and those with an
// impossible secret.
func TestNeitherRightNorWrong(t *testing.T) {
	t.Parallel()
	b := newBench(t, filepath.Join(t.TempDir(), "gateway.db"))
	defer b.close()
	_, code := b.start()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	odd := device(wrong, "box")
	odd.Secret = "short"
	for range 20 {
		if _, deny := b.service.Claim(ended, device(code, "box")); deny == nil || deny.Code != link.DenyUnavailable ||
			!deny.Retry {
			t.Fatalf("denied with %+v", deny)
		}
		b.refused(odd, link.DenyHello)
	}
	b.claim(device(code, "box"))
}

func TestCode(t *testing.T) {
	t.Parallel()
	b := newBench(t, filepath.Join(t.TempDir(), "gateway.db"))
	defer b.close()
	p, code := b.start()
	if normal, ok := store.NormalizeCode(code); !ok || normal != code {
		t.Errorf("the code is %q", code)
	}
	if got := b.code(p.ID); got != code {
		t.Errorf("code %q", got)
	}
	b.claim(device(code, "box"))
	if got := b.code(p.ID); got != code {
		t.Errorf("code %q while the device waits", got)
	}
	b.deny(p.ID)
	if got := b.code(p.ID); got != "" {
		t.Errorf("code %q after the end", got)
	}
	if got := b.code("pair_of_others"); got != "" {
		t.Errorf("code %q of a pairing that does not exist", got)
	}
}
