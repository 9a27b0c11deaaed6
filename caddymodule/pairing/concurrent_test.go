package pairing_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// A decision that comes just when a device claims or comes back reaches it,
// whoever is faster.
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
		ticket, deny := b.desk.Claim(context.Background(), device(code, "box"))
		if deny == nil {
			select {
			case d := <-ticket.Decided:
				deny = d.Deny
			case <-time.After(10 * time.Second):
				t.Fatal("the decision is lost")
			}
		}
		wg.Wait()
		if denied := deny != nil; denied != (i%3 == 0) {
			t.Errorf("round %d: %+v", i, deny)
		}
	}
}

// Of many devices with one code, and many connections of each, one device wins
// and has one place; an approval reaches one connection.
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
			ticket, deny := b.desk.Claim(context.Background(), device(code, name))
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
	for _, of := range tickets {
		if len(of) != 6 {
			t.Errorf("%d of 6 connections were let in", len(of))
		}
		for _, ticket := range of {
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

// Closing while devices come and decisions are made ends all tickets.
func TestConcurrentClose(t *testing.T) {
	t.Parallel()
	b := newBench(t, filepath.Join(t.TempDir(), "gateway.db"))
	defer b.close()
	var wg sync.WaitGroup
	for range 10 {
		p, code := b.start()
		wg.Go(func() {
			ticket, deny := b.desk.Claim(context.Background(), device(code, "box"))
			if deny != nil {
				if deny.Code != link.DenyShutdown && deny.Code != link.DenyPairingDenied {
					t.Errorf("denied: %v", deny)
				}
				return
			}
			select {
			case <-ticket.Decided:
			case <-time.After(10 * time.Second):
				t.Error("a ticket outlives the desk")
			}
		})
		wg.Go(func() { _, _ = b.store.DenyPairing(context.Background(), account, p.ID, "usr_1") })
	}
	b.desk.Close()
	wg.Wait()
}
