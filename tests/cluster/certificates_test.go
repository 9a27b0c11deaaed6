package cluster

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
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

	"github.com/postern-dev/postern/caddymodule/cluster/certstore"
	"github.com/postern-dev/postern/caddymodule/cluster/etcd"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig"
)

// issuingURL is set in the process that TestOneCertificate kills.
const issuingURL = "TEST_ISSUING_URL"

// TestOneCertificate has two gateways wait for the certificate that a third one obtains, and
// kills that. One of them obtains the certificate for both.
func TestOneCertificate(t *testing.T) {
	t.Parallel()
	if url := os.Getenv(issuingURL); url != "" {
		err := obtain(t, url, func() { fmt.Println("issuing"); select {} })
		t.Fatalf("not killed: %v", err)
	}
	url := start(t, 1)[0].url
	holder, err := rig.NewProcess(t.TempDir(), "holder", func() *exec.Cmd {
		return exec.Command(os.Args[0], "-test.run=^TestOneCertificate$")
	})
	if err != nil {
		t.Fatal(err)
	}
	holder.Env = []string{issuingURL + "=" + url}
	t.Cleanup(holder.Kill)
	if line, err := holder.StartAnnounced(); err != nil || line != "issuing" {
		t.Fatalf("the holder of the lock: %q, %v", line, err)
	}
	var issued atomic.Int32
	var gateways sync.WaitGroup
	for range 2 {
		gateways.Go(func() {
			if err := obtain(t, url, func() { issued.Add(1) }); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(time.Second) // they wait for the lock; without this wait, they would not have to
	if issued.Load() != 0 {
		t.Error("the lock of a living process was taken")
	}
	holder.Kill()
	gateways.Wait()
	if issued.Load() != 1 {
		t.Errorf("issued %d certificates, want 1", issued.Load())
	}
}

// obtain obtains the certificate of a name as a gateway. issue is called if that asks the
// issuer.
func obtain(t *testing.T, url string, issue func()) error {
	storage := certstore.New(certstore.Options{
		Open: func(ctx context.Context) (store.KV, error) {
			return etcd.Open(ctx, etcd.Options{Endpoints: []string{url}})
		},
		Files: t.TempDir(),
	})
	defer storage.Destruct()
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil }, Logger: zap.NewNop(),
	})
	defer cache.Stop()
	config = certmagic.New(cache, certmagic.Config{Storage: storage, Issuers: []certmagic.Issuer{issuer(issue)}, Logger: zap.NewNop()})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := config.ObtainCertSync(ctx, "example.com"); err != nil {
		return err
	}
	_, err := storage.Load(ctx, certmagic.StorageKeys.SitePrivateKey("fake", "example.com"))
	return err
}

// issuer issues certificates, whose signatures are not checked, after it has called itself.
type issuer func()

func (issuer) IssuerKey() string { return "fake" }

func (f issuer) Issue(_ context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	f()
	key, err := certmagic.StandardKeyGenerator{KeyType: certmagic.ED25519}.GenerateKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: csr.DNSNames, NotBefore: time.Now(), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, csr.PublicKey, key)
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
}
