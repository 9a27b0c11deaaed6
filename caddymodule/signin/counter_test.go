package signin

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A counter that does not go up shows that the key was copied. From then on, both copies are refused.
func TestCopiedPasskey(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann := d.addUser(t, "ann")
	a := newAuthenticator(t, origin)
	d.addPasskey(t, ann, a, "phone")
	thief := *a
	must(t, errOf(d.passkey(t, home, a)))
	used := d.store.Passkeys(ann.ID)[0].LastUsedAt
	if _, err := d.passkey(t, elsewhere, &thief); !errors.Is(err, ErrPasskey) || !strings.Contains(err.Error(), "copied") {
		t.Errorf("the copy: %v", err)
	}
	if got := d.store.Passkeys(ann.ID)[0].LastUsedAt; !got.Equal(*used) {
		t.Error("the refused use is noted as one")
	}
	if _, err := d.passkey(t, home, a); !errors.Is(err, ErrPasskey) || !strings.Contains(err.Error(), "copied") {
		t.Errorf("the original after the copy: %v", err)
	}
	if n := len(d.store.Sessions(ann.ID)); n != 1 {
		t.Errorf("%d sessions, not 1", n)
	}
}

// Synced passkeys always count zero.
func TestPasskeyWithoutCounter(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	a := newAuthenticator(t, origin)
	d.addPasskey(t, d.addUser(t, "ann"), a, "phone")
	for range 3 {
		a.counter = ^uint32(0) // get adds one
		must(t, errOf(d.passkey(t, home, a)))
	}
}

// Of copies that use the same counter concurrently, one is accepted.
func TestCopiedPasskeyRace(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	a := newAuthenticator(t, origin)
	d.addPasskey(t, d.addUser(t, "ann"), a, "phone")
	var winners atomic.Int64
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			thief := *a
			if _, err := d.passkey(t, fmt.Sprintf("192.0.2.%d", i), &thief); err == nil {
				winners.Add(1)
			} else if !errors.Is(err, ErrPasskey) {
				t.Errorf("one that lost: %v", err)
			}
		})
	}
	wait.Wait()
	if n := winners.Load(); n != 1 {
		t.Errorf("%d copies got in", n)
	}
}
