package pairing_test

import (
	"context"
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
		deny := b.refused(from("192.0.2.1", wrong), link.DenyPairingLimit)
		if !deny.Retry || !strings.Contains(deny.Message, "in 20 seconds") {
			b.Errorf("refused with %+v", deny)
		}
		// Not even the right code tells a guesser anything, but for the device
		// that has it already; nobody else is hindered.
		b.refused(from("192.0.2.1", code), link.DenyPairingLimit)
		b.claim(from("192.0.2.1", returning)).Release()
		b.refused(from("192.0.2.2", wrong), link.DenyPairingUnknown)
		time.Sleep(20*time.Second - time.Millisecond)
		b.refused(from("192.0.2.1", code), link.DenyPairingLimit)
		time.Sleep(time.Millisecond)
		b.claim(from("192.0.2.1", code)).Release()
	})
}

func TestGuessesInAll(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, code := b.start()
		for i := range 50 {
			b.refused(from(fmt.Sprintf("192.0.2.%d", i), wrong), link.DenyPairingUnknown)
		}
		deny := b.refused(from("198.51.100.1", code), link.DenyPairingLimit)
		if !strings.Contains(deny.Message, "in 15 minutes") {
			b.Errorf("refused with %+v", deny)
		}
		b.deny(p.ID)
		time.Sleep(15*time.Minute - time.Second)
		b.refused(from("198.51.100.1", wrong), link.DenyPairingLimit)
		time.Sleep(time.Second)
		_, code = b.start()
		b.claim(from("198.51.100.1", code)).Release()
	})
}

// Guesses are counted by what one customer has.
func TestGuessesByGroup(t *testing.T) {
	for name, c := range map[string]struct {
		guessers [5]string
		other    string
		same     string
	}{
		"IPv6 by /64": {
			[5]string{"2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::3", "2001:db8::4%eth0", "2001:db8::5"},
			"2001:db8:0:1::1", "2001:db8::ffff:ffff:ffff:ffff",
		},
		"IPv4, however written": {
			[5]string{"192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"},
			"192.0.2.2", "192.0.2.1",
		},
		"no addresses": {[5]string{"a", "b", "", "d", "e"}, "192.0.2.1", "f"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				for _, remote := range c.guessers {
					b.refused(from(remote, wrong), link.DenyPairingUnknown)
				}
				b.refused(from(c.same, wrong), link.DenyPairingLimit)
				b.refused(from(c.other, wrong), link.DenyPairingUnknown)
			})
		})
	}
}

// Right codes, also those that have ended, are no guesses.
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

// Many at once get no further than one after the other.
func TestConcurrentGuesses(t *testing.T) {
	for name, c := range map[string]struct {
		remote func(i int) string
		most   int64
	}{
		"one address":    {func(int) string { return "192.0.2.1" }, 5},
		"many addresses": {func(i int) string { return fmt.Sprintf("2001:db8:%x::1", i) }, 50},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				var checked atomic.Int64
				var wg sync.WaitGroup
				for i := range 300 {
					wg.Go(func() {
						_, deny := b.desk.Claim(context.Background(), from(c.remote(i), wrong))
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

// Nobody learns a code through the exception for devices that come back: with a
// secret that is not that of the code's device it does not hold.
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
