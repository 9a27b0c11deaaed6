package rotation

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/storetest"
)

// bench is a service over a real store with one connector.
type bench struct {
	*Service
	t      *testing.T
	store  *store.Store
	path   string
	id     string
	old    string // its secret
	log    bytes.Buffer
	failed error // of creating tokens
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, path: filepath.Join(t.TempDir(), "gateway.db")}
	b.open()
	c, secret, err := b.store.CreateConnector(t.Context(), store.DefaultAccount, "box")
	if err != nil {
		t.Fatal(err)
	}
	b.id, b.old = c.ID, secret
	return b
}

// open starts the gateway, which knows only the content of the file.
func (b *bench) open() {
	b.t.Helper()
	if b.store != nil {
		if err := b.store.Close(); err != nil && !errors.Is(err, store.ErrClosed) {
			b.t.Fatal(err)
		}
	}
	b.store = storetest.Open(b.t, b.path)
	b.Service = New(Options{
		Store: b.store, Logger: slog.New(slog.NewTextHandler(&b.log, nil)),
		Token: func(id, secret string) (string, error) { return id + "/" + secret, b.failed },
	})
}

func (b *bench) begin() {
	b.t.Helper()
	if _, err := b.store.BeginRotation(b.t.Context(), store.DefaultAccount, b.id); err != nil {
		b.t.Fatal(err)
	}
}

// next returns an offer and the secret in it.
func (b *bench) next() (link.Rotate, string) {
	b.t.Helper()
	offer, ok := b.Next(b.t.Context(), b.id)
	if !ok {
		b.t.Fatalf("there is no offer; log:\n%s", b.log.String())
	}
	secret, ours := strings.CutPrefix(offer.TunnelToken, b.id+"/")
	if !ours || offer.Number == 0 {
		b.t.Fatalf("the offer is of another connector: %v", offer)
	}
	return offer, secret
}

// hello sends a hello with a secret.
func (b *bench) hello(secret string) {
	b.t.Helper()
	if number := b.Hello(b.id, secret); number != 0 && !b.Rotated(b.t.Context(), b.id, link.Rotated{Number: number}) {
		b.t.Error("a new secret was not confirmed")
	}
}

// valid checks that exactly these secrets are valid.
func (b *bench) valid(secrets map[string]bool) {
	b.t.Helper()
	for secret, want := range secrets {
		if _, err := b.store.AuthenticateConnector(b.id, secret); (err == nil) != want {
			b.t.Errorf("secret %.4s… is let in: %v", secret, err == nil)
		}
	}
	if strings.Contains(b.log.String(), b.old) {
		b.t.Error("the log has a secret")
	}
}

func TestAnswered(t *testing.T) {
	b := newBench(t)
	if b.Pending(b.id) || b.Pending("con_gone") {
		t.Error("a rotation is pending that nobody asked for")
	}
	if _, ok := b.Next(t.Context(), b.id); ok {
		t.Error("there is an offer that nobody asked for")
	}
	b.begin()
	offer, secret := b.next()
	again, _ := b.next()
	if again != offer {
		t.Error("the same process makes another offer")
	}
	b.Rotated(t.Context(), b.id, link.Rotated{Number: 7})
	b.valid(map[string]bool{b.old: true, secret: true})
	b.Rotated(t.Context(), b.id, link.Rotated{Number: offer.Number, Error: "read-only"})
	b.valid(map[string]bool{b.old: true, secret: true})
	if c, _ := b.store.Connector(b.id); c.Rotation == nil || c.Rotation.Problem != "read-only" {
		t.Errorf("the problem is not kept: %+v", c.Rotation)
	}
	b.Rotated(t.Context(), b.id, link.Rotated{Number: offer.Number})
	b.valid(map[string]bool{b.old: false, secret: true})
	if b.Pending(b.id) {
		t.Error("it is still pending")
	}
	// An answer that comes twice does not end the next rotation.
	b.begin()
	next, nextSecret := b.next()
	if next.Number == offer.Number || nextSecret == secret {
		t.Error("the next rotation offers the same")
	}
	b.Rotated(t.Context(), b.id, link.Rotated{Number: offer.Number})
	b.valid(map[string]bool{secret: true, nextSecret: true})
	if strings.Contains(b.log.String(), secret) || strings.Contains(b.log.String(), nextSecret) {
		t.Error("the log has a secret")
	}
}

// A restarted gateway knows only the hashes of the secrets that it has offered. That is enough.
func TestRestart(t *testing.T) {
	b := newBench(t)
	b.begin()
	first, firstSecret := b.next()
	b.open()
	if !b.Pending(b.id) {
		t.Fatal("the rotation is forgotten")
	}
	second, secondSecret := b.next()
	if first.Number == second.Number || firstSecret == secondSecret {
		t.Error("the secret was kept")
	}
	// Its connector had stored the first one, and was killed before it could confirm that.
	b.hello(b.old)
	b.valid(map[string]bool{b.old: true, firstSecret: true, secondSecret: true})
	b.hello(firstSecret)
	b.valid(map[string]bool{b.old: false, firstSecret: true, secondSecret: true})
	// The answer to the second offer arrives late.
	b.Rotated(t.Context(), b.id, link.Rotated{Number: second.Number})
	b.valid(map[string]bool{firstSecret: false, secondSecret: true})
}

func TestByHand(t *testing.T) {
	b := newBench(t)
	b.begin()
	_, offered := b.next()
	_, shown, err := b.store.ShowSecret(t.Context(), store.DefaultAccount, b.id)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := b.Next(t.Context(), b.id); ok || b.Pending(b.id) {
		t.Error("the connector is offered a token that a person copies")
	}
	b.hello(shown.Secret)
	b.valid(map[string]bool{b.old: false, offered: false, shown.Secret: true})
}

// Successive tunnels of one connector get the same offer.
func TestOneOffer(t *testing.T) {
	b := newBench(t)
	b.begin()
	numbers := make(chan int64, 20)
	var all sync.WaitGroup
	for range cap(numbers) {
		all.Go(func() {
			offer, _ := b.Next(t.Context(), b.id)
			numbers <- offer.Number
		})
	}
	all.Wait()
	close(numbers)
	first := <-numbers
	for number := range numbers {
		if number != 1 || first != 1 {
			t.Errorf("offers %d and %d", first, number)
		}
	}
}

// Failures are logged, and the rotation stays pending.
func TestFailures(t *testing.T) {
	b := newBench(t)
	b.begin()
	b.failed = errors.New("no address")
	if _, ok := b.Next(t.Context(), b.id); ok || !strings.Contains(b.log.String(), "no address") {
		t.Errorf("an offer without a token, or no word of it: %s", b.log.String())
	}
	b.failed = nil
	offer, secret := b.next()
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	b.Rotated(t.Context(), b.id, link.Rotated{Number: offer.Number})
	if !strings.Contains(b.log.String(), "the old token stays valid") {
		t.Errorf("log:\n%s", b.log.String())
	}
	b.open()
	b.valid(map[string]bool{b.old: true, secret: true})
	// Offers to removed connectors are forgotten.
	b.next()
	if _, err := b.store.RemoveConnector(t.Context(), store.DefaultAccount, b.id); err != nil {
		t.Fatal(err)
	}
	other, _, err := b.store.CreateConnector(t.Context(), store.DefaultAccount, "other")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.BeginRotation(t.Context(), store.DefaultAccount, other.ID); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.Next(t.Context(), other.ID); !ok || len(b.offers) != 1 {
		t.Errorf("an offer: %v; kept are %d", ok, len(b.offers))
	}
}

// Outdated pins begin a rotation, unless one is pending, and the report of a connector is stored.
func TestPins(t *testing.T) {
	b := newBench(t)
	b.Renew(t.Context(), b.id)
	_, first := b.next()
	b.Renew(t.Context(), b.id)
	if _, again := b.next(); again != first {
		t.Error("a pending rotation began again")
	}
	b.Renew(t.Context(), "con_none")
	for _, pin := range []string{"one", "one", "two"} {
		b.Confirm(t.Context(), b.id, pin)
		if c, _ := b.store.Connector(b.id); c.NextPin != pin {
			t.Errorf("the pin is %q, want %q", c.NextPin, pin)
		}
	}
	b.Confirm(t.Context(), "con_none", "one")
}
