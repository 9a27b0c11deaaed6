package pairing_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/postern-dev/postern/caddymodule/pairing"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/storetest"
)

const (
	account = store.DefaultAccount
	pin     = "the pin"
)

// bench is a service over a store.
type bench struct {
	*testing.T
	store   *store.Store
	service *pairing.Service
	limits  int // calls of Options.Limited
}

// newBench returns a bench of the file at path, which must be closed.
func newBench(t *testing.T, path string) *bench {
	t.Helper()
	b := &bench{T: t, store: storetest.Open(t, path)}
	b.newService()
	return b
}

func (b *bench) newService() {
	b.service = pairing.New(pairing.Options{
		Store: b.store, Token: token, Pin: func() string { return pin }, Limited: func() { b.limits++ },
	})
}

// token is a tunnel token that tests can read.
func token(connectorID, secret string) (string, error) { return connectorID + "/" + secret, nil }

// hooked is a KV that calls a hook before or after its next transaction.
type hooked struct {
	store.KV
	before, after atomic.Pointer[func()]
}

func (h *hooked) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if f := h.before.Swap(nil); f != nil {
		(*f)()
	}
	result, err := h.KV.Txn(ctx, t)
	if f := h.after.Swap(nil); f != nil {
		(*f)()
	}
	return result, err
}

// newHookedBench returns a bench over a KV with hooks.
func newHookedBench(t *testing.T, path string) (*bench, *hooked) {
	t.Helper()
	kv := &hooked{KV: storetest.OpenBolt(t, path)}
	st, err := store.New(kv, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, store: st}
	b.newService()
	return b, kv
}

func (b *bench) close() {
	b.service.Close()
	if err := b.store.Close(); err != nil {
		b.Error(err)
	}
}

// inBubble runs f with a new bench in a bubble.
func inBubble(t *testing.T, f func(b *bench)) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, path)
		defer b.close()
		f(b)
	})
}

// code returns the code that is shown of a pairing.
func (b *bench) code(id string) string { return b.store.PairingCode(context.Background(), id) }

// connected reports whether the device of a pairing is shown as connected.
func (b *bench) connected(id string) bool {
	p, _ := b.store.Pairing(account, id)
	return b.service.Connected(p)
}

func (b *bench) start() (store.Pairing, string) {
	b.Helper()
	p, code, err := b.store.CreatePairing(context.Background(), account, "usr_1")
	if err != nil {
		b.Fatal(err)
	}
	return p, code
}

// device returns a device with this name, which determines its secret.
func device(code, name string) tunnel.Device {
	return tunnel.Device{
		Code: code, Secret: secret(name), Hostname: name, OS: "linux/amd64", Version: "1.0.0",
		Remote: "192.0.2.1", Upstreams: []string{"ollama"},
	}
}

func secret(name string) string { return name + strings.Repeat("0", 43-len(name)) }

// claim claims for a device, and fails if that is refused.
func (b *bench) claim(d tunnel.Device) tunnel.Ticket {
	b.Helper()
	t, deny := b.service.Claim(context.Background(), d)
	if deny != nil {
		b.Fatalf("denied: %v", deny)
	}
	return t
}

// refused claims for a device, and fails unless that is refused.
func (b *bench) refused(d tunnel.Device, code string) *link.Deny {
	b.Helper()
	t, deny := b.service.Claim(context.Background(), d)
	if deny == nil {
		t.Release()
		b.Fatalf("the device was let in, not refused with %s", code)
	}
	b.denied(deny, code)
	return deny
}

func (b *bench) denied(deny *link.Deny, code string) {
	b.Helper()
	if deny == nil || deny.Code != code || deny.Message == "" {
		b.Errorf("denied with %+v, not with %s", deny, code)
	}
}

func (b *bench) approve(id string) store.Pairing {
	b.Helper()
	p, _, err := b.store.ApprovePairing(context.Background(), account, id, "", "usr_1")
	if err != nil {
		b.Fatal(err)
	}
	return p
}

func (b *bench) deny(id string) {
	b.Helper()
	if _, err := b.store.DenyPairing(context.Background(), account, id, "usr_1"); err != nil {
		b.Fatal(err)
	}
}

// decision returns the decision that the ticket has now.
func (b *bench) decision(t tunnel.Ticket) tunnel.Decision {
	b.Helper()
	select {
	case d, ok := <-t.Decided:
		if !ok {
			b.Fatal("closed without a decision")
		}
		return d
	default:
		b.Fatal("no decision")
	}
	return tunnel.Decision{}
}

func (b *bench) undecided(t tunnel.Ticket) {
	b.Helper()
	select {
	case d, ok := <-t.Decided:
		b.Fatalf("decided %+v, %v", d, ok)
	default:
	}
}

// sentBack fails unless the ticket ended without a decision.
func (b *bench) sentBack(t tunnel.Ticket) {
	b.Helper()
	select {
	case d, ok := <-t.Decided:
		if ok {
			b.Errorf("decided %+v", d)
		}
	default:
		b.Error("the ticket is still good")
	}
}
