package pairing_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// from is a device at an address.
func from(remote, code string) tunnel.Device {
	d := device(code, "box")
	d.Remote = remote
	return d
}

const wrong = "PAIR-ZZZZ-ZZZZ"

func TestGuessesOfAnAddress(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, code := b.start()
		_, returning := b.start()
		b.claim(from("192.0.2.1", returning)).Release()
		for range 4 {
			b.refused(from("192.0.2.1", wrong), link.DenyPairingUnknown)
			time.Sleep(10 * time.Second)
		}
		b.refused(from("192.0.2.1", "nonsense"), link.DenyPairingUnknown)
		for range 5 {
			deny := b.refused(from("192.0.2.1", wrong), link.DenyPairingLimit)
			if !deny.Retry || !strings.Contains(deny.Message, "in 60 seconds") {
				b.Errorf("refused with %+v", deny)
			}
			time.Sleep(time.Minute)
			b.refused(from("192.0.2.1", wrong), link.DenyPairingUnknown)
		}
		// A guesser learns nothing even from the right code. The device that has claimed
		// it, and clients of other networks, are not limited.
		b.refused(from("192.0.2.1", code), link.DenyPairingLimit)
		b.claim(from("192.0.2.1", returning)).Release()
		b.refused(from("192.0.2.2", wrong), link.DenyPairingUnknown)
		time.Sleep(time.Minute - time.Millisecond)
		b.refused(from("192.0.2.1", code), link.DenyPairingLimit)
		time.Sleep(time.Millisecond)
		b.claim(from("192.0.2.1", code)).Release()
	})
}

// Thousands of networks can exhaust the limit of all. Then no device is let in while they guess, and users of the
// console see that.
func TestGuessesFromManyNetworks(t *testing.T) {
	inBubble(t, func(b *bench) {
		guess := func(i int) string {
			_, deny := b.service.Claim(context.Background(), from(fmt.Sprintf("10.%d.%d.1", i>>8, i&0xff), wrong))
			return deny.Code
		}
		for i := range 5000 { // all at once
			if got := guess(i % 1000); got != link.DenyPairingUnknown {
				t.Fatalf("network %d: %s", i, got)
			}
		}
		_, code := b.start()
		if b.service.Limited() || guess(1000) != link.DenyPairingLimit || !b.service.Limited() {
			t.Errorf("notified %d times", b.limits)
		}
		deny := b.refused(from("203.0.113.1", code), link.DenyPairingLimit)
		if !deny.Retry || !strings.Contains(deny.Message, "in 10 seconds") || b.limits != 1 {
			b.Errorf("refused with %+v; notified %d times", deny, b.limits)
		}
		time.Sleep(10 * time.Second)
		b.claim(from("203.0.113.1", code)).Release()
		time.Sleep(time.Minute)
		if b.service.Limited() {
			b.Error("a minute later, Limited reports that codes are refused")
		}
	})
}

// Guesses are counted by IPv4 address, and by the /48 of IPv6.
func TestGuessesByNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		guesser     func(i int) string
		same, other string
	}{
		"a /64": {
			func(i int) string { return fmt.Sprintf("2001:db8::%x:1%%eth0", i) },
			"2001:db8::ffff:ffff:ffff:ffff", "2001:db8:1::1",
		},
		"a /48": {
			func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i<<8) }, "2001:db8:0:ffff::1", "2001:db8:1::1",
		},
		"IPv4":                  {func(int) string { return "::ffff:192.0.2.1" }, "192.0.2.1", "192.0.2.2"},
		"what are no addresses": {func(i int) string { return strings.Repeat("a", i) }, "b", "192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				for i := range 5 {
					b.refused(from(c.guesser(i), wrong), link.DenyPairingUnknown)
				}
				b.refused(from(c.same, wrong), link.DenyPairingLimit)
				b.refused(from(c.other, wrong), link.DenyPairingUnknown)
				if b.service.Limited() {
					b.Error("the guesses of one network limit all")
				}
			})
		})
	}
}

// Right codes, including expired ones, do not count as guesses.
func TestRightCodesAreNoGuesses(t *testing.T) {
	inBubble(t, func(b *bench) {
		for i := range 12 {
			p, code := b.start()
			ticket := b.claim(device(code, fmt.Sprintf("box%d", i)))
			b.refused(device(code, "other"), link.DenyPairingUsed)
			b.deny(p.ID)
			ticket.Release()
		}
		_, code := b.start()
		b.claim(device(code, "box"))
	})
}

// Concurrent guesses are limited like successive ones.
func TestConcurrentGuesses(t *testing.T) {
	for name, c := range map[string]struct {
		remote func(i int) string
		most   int64
	}{
		"one address": {func(int) string { return "192.0.2.1" }, 5},
		"one network": {func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i&0xff<<8) }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				var checked atomic.Int64
				var wg sync.WaitGroup
				for i := range 300 {
					wg.Go(func() {
						_, deny := b.service.Claim(context.Background(), from(c.remote(i), wrong))
						switch {
						case deny == nil:
							b.Error("let in")
						case deny.Code == link.DenyPairingUnknown:
							checked.Add(1)
						case deny.Code != link.DenyPairingLimit:
							b.Errorf("denied: %v", deny)
						}
					})
				}
				wg.Wait()
				if got := checked.Load(); got != c.most {
					b.Errorf("%d codes were checked, not %d", got, c.most)
				}
			})
		})
	}
}

// The exception for devices that reconnect reveals no code: it needs the secret of the code's device.
func TestReturningNeedsTheSecret(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, code := b.start()
		b.claim(device(code, "box")).Release()
		for range 5 {
			b.refused(device(wrong, "box"), link.DenyPairingUnknown)
		}
		b.refused(device(wrong, "box"), link.DenyPairingLimit)
		b.refused(device(code, "other"), link.DenyPairingLimit)
		b.claim(device(code, "box"))
		if got, _ := b.store.Pairing(account, p.ID); got.State != store.PairingPending {
			b.Errorf("the pairing is %s", got.State)
		}
	})
}

// A proof of a code counts as the code itself.
func TestGuessesByProof(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, code := b.start()
		expects := func(remote, code string) string {
			hash := sha256.Sum256([]byte(code))
			id, _ := b.service.Expects(remote, func(codeHash []byte) bool { return bytes.Equal(codeHash, hash[:]) })
			return id
		}
		for range 20 { // right ones do not count
			if id := expects("192.0.2.1", code); id != p.ID {
				t.Fatalf("the pairing %q is expected, not %q", id, p.ID)
			}
		}
		for range 5 {
			if id := expects("192.0.2.1", wrong); id != "" {
				t.Errorf("a wrong code is that of %q", id)
			}
		}
		if id := expects("192.0.2.1", code); id != "" {
			t.Error("a guesser learns a code")
		}
		b.refused(from("192.0.2.1", code), link.DenyPairingLimit)
		if id := expects("192.0.2.2", code); id != p.ID {
			t.Error("another address is hindered")
		}
		b.deny(p.ID)
		if id := expects("192.0.2.2", code); id != "" {
			t.Error("the code of a decided pairing is expected")
		}
	})
}
