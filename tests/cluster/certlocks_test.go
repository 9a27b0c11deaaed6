package cluster

import (
	"bufio"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

const (
	certificateLock = "issue_cert_example.com"
	certificateKey  = "certificates/ca/example.com/example.com.key"
	certificateFile = "certificates/ca/example.com/example.com.crt"
	// holderURL is the environment variable of a process that obtains the lock and keeps it.
	holderURL = "POSTERN_CERTIFICATE_HOLDER"
)

// TestCertificateHolder is the other process of TestCertificateLockOfDeadProcess.
func TestCertificateHolder(t *testing.T) {
	url := os.Getenv(holderURL)
	if url == "" {
		return
	}
	must(t, openCertificates(url, t.TempDir()).Lock(t.Context(), certificateLock))
	fmt.Println("locked")
	<-t.Context().Done()
}

// A lock keeps other processes out until its holder dies.
func TestCertificateLockOfDeadProcess(t *testing.T) {
	t.Parallel()
	s := start(t, 1)[0]
	b := newCertificates(t, s, t.TempDir())
	holder := exec.Command(os.Args[0], "-test.run=^TestCertificateHolder$")
	holder.Env = append(os.Environ(), holderURL+"="+s.url)
	out, err := holder.StdoutPipe()
	must(t, errors.Join(err, holder.Start()))
	defer holder.Wait()
	defer holder.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the holder: %q, %v", line, err)
	}
	if free, err := b.TryLock(t.Context(), certificateLock); free || err != nil {
		t.Fatalf("a lock of another process: %v, %v", free, err)
	}
	waiting, stop := context.WithTimeout(t.Context(), 12*time.Second) // longer than a lock without its holder
	defer stop()
	if err := b.Lock(waiting, certificateLock); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a lock that is kept: %v", err)
	}
	must(t, holder.Process.Kill())
	must(t, b.Lock(t.Context(), certificateLock))
}

// Many users of one lock, at several gateways, have it in turns.
func TestCertificateLockIsExclusive(t *testing.T) {
	t.Parallel()
	s := start(t, 1)[0]
	var holders, turns atomic.Int32
	var users sync.WaitGroup
	for range 3 {
		e := newCertificates(t, s, t.TempDir())
		for range 2 {
			users.Go(func() {
				if err := e.Lock(t.Context(), certificateLock); err != nil {
					t.Error(err)
					return
				}
				if holders.Add(1) != 1 {
					t.Error("two users have the lock")
				}
				if free, err := e.TryLock(t.Context(), certificateLock); free || err != nil {
					t.Errorf("a lock that is taken: %v, %v", free, err)
				}
				turns.Add(1)
				holders.Add(-1)
				if err := e.Unlock(t.Context(), certificateLock); err != nil {
					t.Error(err)
				}
			})
		}
	}
	users.Wait()
	if turns.Load() != 6 {
		t.Errorf("%d users have had the lock, want 6", turns.Load())
	}
}

// A gateway that has lost its lock, because it lost etcd, writes nothing of the same name until it has the lock again.
func TestCertificateLockIsLost(t *testing.T) {
	t.Parallel()
	s, ctx := start(t, 1)[0], t.Context()
	a, b := newCertificates(t, s, t.TempDir()), newCertificates(t, s, t.TempDir())
	must(t, a.Lock(ctx, certificateLock))
	must(t, a.Store(ctx, certificateKey, []byte("a")))
	a.setAway(true)
	must(t, b.Lock(ctx, certificateLock))
	must(t, b.Store(ctx, certificateKey, []byte("b")))
	a.setAway(false)
	must(t, a.Store(ctx, "certificates/ca/other.example.com/x", nil))
	for what, err := range map[string]error{
		"store": a.Store(ctx, certificateFile, []byte("a")), "delete": a.Delete(ctx, certificateKey),
	} {
		if err == nil {
			t.Errorf("%s without the lock succeeds", what)
		}
	}
	b.holds(t, certificateKey, "b")
	b.holds(t, certificateFile, "")

	waiting, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	if err := a.RenewLockLease(waiting, certificateLock, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("two gateways have the lock: %v", err)
	}
	must(t, b.Unlock(ctx, certificateLock))
	must(t, a.RenewLockLease(ctx, certificateLock, 0))
	must(t, a.Store(ctx, certificateKey, []byte("again")))
	must(t, a.RenewLockLease(ctx, certificateLock, 0))
	b.holds(t, certificateKey, "again")
	must(t, a.Destruct())
	must(t, a.Unlock(ctx, certificateLock)) // certmagic does that when the process ends
	must(t, b.Lock(ctx, certificateLock))
}

// Several gateways obtain the certificate of one name at once. The first one to ask the issuer may lose etcd then.
func TestCertificateIssuedOnce(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		s := start(t, 1)[0]
		var asked, issued atomic.Int32
		var gateways sync.WaitGroup
		for range 3 {
			e := newCertificates(t, s, t.TempDir())
			config := certmagicConfig(t, e, func() error {
				if asked.Add(1) == 1 && dies {
					e.setAway(true)
					return errors.New("the gateway is dead")
				}
				issued.Add(1)
				return nil
			})
			gateways.Go(func() {
				err := config.ObtainCertSync(t.Context(), "example.com")
				if e.line.refuse.Load() {
					return
				}
				if err != nil || !e.Exists(t.Context(), certmagic.StorageKeys.SiteCert("fake", "example.com")) {
					t.Errorf("a gateway does not have the certificate: %v", err)
				}
			})
		}
		gateways.Wait()
		if issued.Load() != 1 {
			t.Errorf("issued %d certificates, want 1", issued.Load())
		}
	}
}

// certmagicConfig returns a configuration of certmagic with an issuer that calls f.
func certmagicConfig(t *testing.T, storage certmagic.Storage, f func() error) *certmagic.Config {
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil }, Logger: zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	config = certmagic.New(cache,
		certmagic.Config{Storage: storage, Issuers: []certmagic.Issuer{issuer(f)}, Logger: zap.NewNop()})
	return config
}

type issuer func() error

func (issuer) IssuerKey() string { return "fake" }

func (f issuer) Issue(_ context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	if err := f(); err != nil {
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
