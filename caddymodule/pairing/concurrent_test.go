package pairing_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// A decision between the claim in the store and the registration of the ticket is not lost.
func TestDecisionBeforeThePlace(t *testing.T) {
	for name, c := range map[string]struct {
		decide func(b *bench, id string)
		token  bool
	}{
		"approved": {func(b *bench, id string) { b.approve(id) }, true},
		"denied":   {func(b *bench, id string) { b.deny(id) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, kv := newHookedBench(t, filepath.Join(t.TempDir(), "gateway.db"))
			defer b.close()
			p, code := b.start()
			decide := func() { c.decide(b, p.ID) }
			kv.after.Store(&decide)
			if d := b.decision(b.claim(device(code, "box"))); (d.TunnelToken != "") != c.token || (d.Deny == nil) != c.token {
				t.Errorf("decided %+v", d)
			}
		})
	}
}

// An approval that was made in time counts, even if it is written just after the code has expired.
func TestApprovedInTheLastMoment(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		b, kv := newHookedBench(t, path)
		defer b.close()
		p, code := b.start()
		ticket := b.claim(device(code, "box"))
		time.Sleep(store.PairingLife - 100*time.Millisecond)
		slow := func() { time.Sleep(500 * time.Millisecond) }
		kv.before.Store(&slow)
		b.approve(p.ID)
		if d := b.decision(ticket); d.TunnelToken == "" {
			t.Errorf("decided %+v", d)
		}
	})
}

// Concurrent right codes from one network do not throttle each other.
func TestConcurrentRightCodes(t *testing.T) {
	t.Parallel()
	b := newBench(t, filepath.Join(t.TempDir(), "gateway.db"))
	defer b.close()
	var codes []string
	for range 15 {
		_, code := b.start()
		codes = append(codes, code)
	}
	var wg sync.WaitGroup
	for i, code := range codes {
		wg.Go(func() {
			if _, deny := b.service.Claim(context.Background(), device(code, fmt.Sprintf("box%d", i))); deny != nil {
				t.Errorf("denied: %v", deny)
			}
		})
	}
	wg.Wait()
}

// A decision during a claim or a reconnection reaches the device in any order of events.
func TestDecisionMeetsClaim(t *testing.T) {
	t.Parallel()
	b := newBench(t, filepath.Join(t.TempDir(), "gateway.db"))
	defer b.close()
	for i := range 15 {
		p, code := b.start()
		b.claim(device(code, "box")).Release()
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 100 * time.Microsecond)
			if i%3 == 0 {
				b.deny(p.ID)
			} else {
				b.approve(p.ID)
			}
		})
		ticket, deny := b.service.Claim(context.Background(), device(code, "box"))
		if deny == nil {
			deny = wait.For(t, ticket.Decided, "the decision").Deny
		}
		wg.Wait()
		if denied := deny != nil; denied != (i%3 == 0) {
			t.Errorf("round %d: %+v", i, deny)
		}
	}
}

// Of many devices with one code and many connections each, one device gets one ticket, and an approval
// reaches one connection.
func TestConcurrentClaims(t *testing.T) {
	t.Parallel()
	b := newBench(t, filepath.Join(t.TempDir(), "gateway.db"))
	defer b.close()
	p, code := b.start()
	var mu sync.Mutex
	tickets := make(map[string][]tunnel.Ticket)
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			name := fmt.Sprintf("box%d", i%4)
			ticket, deny := b.service.Claim(context.Background(), device(code, name))
			if deny != nil {
				if deny.Code != link.DenyPairingUsed {
					t.Errorf("denied: %v", deny)
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			tickets[name] = append(tickets[name], ticket)
		})
	}
	wg.Wait()
	if len(tickets) != 1 {
		t.Fatalf("%d devices have the code", len(tickets))
	}
	b.approve(p.ID)
	granted := 0
	for _, connections := range tickets {
		if len(connections) != 6 {
			t.Errorf("%d of 6 connections were let in", len(connections))
		}
		for _, ticket := range connections {
			if d, ok := <-ticket.Decided; ok && d.TunnelToken != "" {
				granted++
			}
			ticket.Release()
		}
	}
	if granted != 1 {
		t.Errorf("%d connections got the token", granted)
	}
}

// Close ends all tickets, even while devices connect and users decide.
func TestConcurrentClose(t *testing.T) {
	t.Parallel()
	b := newBench(t, filepath.Join(t.TempDir(), "gateway.db"))
	defer b.close()
	var wg sync.WaitGroup
	for range 10 {
		p, code := b.start()
		wg.Go(func() {
			ticket, deny := b.service.Claim(context.Background(), device(code, "box"))
			if deny != nil {
				if deny.Code != link.DenyShutdown && deny.Code != link.DenyPairingDenied {
					t.Errorf("denied: %v", deny)
				}
				return
			}
			select {
			case <-ticket.Decided:
			case <-time.After(time.Minute):
				t.Error("a ticket outlives the service")
			}
		})
		wg.Go(func() { _, _ = b.store.DenyPairing(context.Background(), account, p.ID, "usr_1") })
	}
	b.service.Close()
	wg.Wait()
}
