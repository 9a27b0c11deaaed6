package certstore_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/postern-dev/postern/caddymodule/store"
)

const lockName = "issue_cert_example.com"

// TestLockIsExclusive has many users of one lock at several gateways.
func TestLockIsExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var holders, turns atomic.Int32
		var users sync.WaitGroup
		for range 3 {
			e := r.edge("")
			for range 4 {
				users.Go(func() {
					if err := e.Lock(t.Context(), lockName); err != nil {
						t.Error(err)
						return
					}
					if holders.Add(1) != 1 {
						t.Error("two users have the lock")
					}
					if free, err := e.TryLock(t.Context(), lockName); free || err != nil {
						t.Errorf("a lock that is taken is obtained: %v, %v", free, err)
					}
					time.Sleep(time.Minute) // longer than the lease
					turns.Add(1)
					holders.Add(-1)
					if err := e.Unlock(t.Context(), lockName); err != nil {
						t.Error(err)
					}
				})
			}
		}
		users.Wait()
		if turns.Load() != 12 {
			t.Errorf("%d users have had the lock, want 12", turns.Load())
		}
	})
}

func TestLockEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.edge(""), r.edge("")
		r.must(a.Lock(t.Context(), lockName))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := b.Lock(ctx, lockName); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for a lock that is kept: %v", err)
		}
		if err := b.Unlock(t.Context(), lockName); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("releasing the lock of another gateway: %v, want ErrNotFound", err)
		}
		if free, err := b.TryLock(t.Context(), lockName); free || err != nil {
			t.Errorf("the lock of another gateway is free: %v, %v", free, err)
		}
		r.must(a.Destruct())
		if free, err := b.TryLock(t.Context(), lockName); !free || err != nil {
			t.Errorf("a lock is not released when its gateway stops: %v, %v", free, err)
		}
		r.must(a.Unlock(t.Context(), lockName)) // certmagic does that when the process ends
		a.Storage = r.edge("").Storage          // for the end of the test
	})
}

// TestLockOfDeadHolder waits for the lock of a gateway that has lost the store. When that is
// back, it must not write what the new holder writes.
func TestLockOfDeadHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx := t.Context()
		const key, certificate = "certificates/ca/example.com/example.com.key", "certificates/ca/example.com/example.com.crt"
		a, b := r.edge(""), r.edge("")
		r.must(a.Lock(ctx, lockName))
		r.must(a.Store(ctx, key, []byte("a")))
		a.line.set(false)
		begin := time.Now()
		r.must(b.Lock(ctx, lockName))
		if waited := time.Since(begin); waited > 20*time.Second {
			t.Errorf("the lock of a dead holder was free after %s", waited)
		}
		r.must(b.Store(ctx, key, []byte("b")))
		if a.Exists(ctx, key) {
			t.Error("the holder of a lock reads a copy")
		}

		a.line.set(true)
		time.Sleep(time.Minute)
		for what, err := range map[string]error{
			"store":  a.Store(ctx, certificate, []byte("a")),
			"delete": a.Delete(ctx, key),
		} {
			if !errors.Is(err, store.ErrConflict) {
				t.Errorf("%s without the lock: %v, want ErrConflict", what, err)
			}
		}
		r.must(a.Store(ctx, "certificates/ca/other.example.com/x", nil))
		r.holds(b, key, "b")
		r.holds(b, certificate, "")

		renewed := make(chan error)
		go func() { renewed <- a.RenewLockLease(ctx, lockName, time.Minute) }()
		synctest.Wait()
		select {
		case err := <-renewed:
			t.Fatalf("two gateways have the lock: %v", err)
		default:
		}
		r.must(b.Unlock(ctx, lockName))
		r.must(<-renewed)
		r.must(a.RenewLockLease(ctx, lockName, time.Minute))
		r.must(a.Store(ctx, key, []byte("again")))
		r.holds(b, key, "again")
		r.must(a.Unlock(ctx, lockName))
		r.must(b.Lock(ctx, lockName))
	})
}

// TestOneIssuance has several gateways obtain the certificate of one name at once. The first
// one to ask the issuer loses the store.
func TestOneIssuance(t *testing.T) {
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			var asked, issued atomic.Int32
			var gateways sync.WaitGroup
			for range 3 {
				e := r.edge("")
				config := newConfig(t, e, func(ctx context.Context) error {
					if asked.Add(1) == 1 && dies {
						e.line.set(false)
						time.Sleep(time.Hour)
						return errors.New("the gateway is dead")
					}
					time.Sleep(time.Minute)
					issued.Add(1)
					return nil
				})
				gateways.Go(func() {
					if err := config.ObtainCertSync(t.Context(), "example.com"); err != nil && e.line.isUp() {
						t.Error(err)
					}
					if e.line.isUp() && !e.Exists(t.Context(), certmagic.StorageKeys.SiteCert("fake", "example.com")) {
						t.Error("a gateway does not have the certificate")
					}
				})
			}
			gateways.Wait()
			if issued.Load() != 1 {
				t.Errorf("issued %d certificates, want 1", issued.Load())
			}
		})
	}
}

// newConfig returns a configuration of certmagic with an issuer that calls f.
func newConfig(t *testing.T, storage certmagic.Storage, f func(context.Context) error) *certmagic.Config {
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil }, Logger: zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	config = certmagic.New(cache,
		certmagic.Config{Storage: storage, Issuers: []certmagic.Issuer{issuer(f)}, Logger: zap.NewNop()})
	return config
}

type issuer func(context.Context) error

func (issuer) IssuerKey() string { return "fake" }

func (f issuer) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	if err := f(ctx); err != nil {
		return nil, err
	}
	key, err := certmagic.StandardKeyGenerator{KeyType: certmagic.P256}.GenerateKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: csr.DNSNames, NotBefore: time.Now(),
		NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, csr.PublicKey, key.(crypto.Signer))
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
}
