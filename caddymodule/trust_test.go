package caddymodule

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"
)

// The root certificate is handed out only if Caddy's own authority has issued the certificate of the site.
func TestOwnRoot(t *testing.T) {
	own := provision(t, "gw.lan {\n tls internal\n model_gateway\n model_console\n}").addresses.sites().pki
	if own == nil {
		t.Fatal("no authority")
	}
	ca := own.CAs["local"]
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	issued := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"gw.lan"}, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(time.Hour),
	}
	intermediate := ca.IntermediateCertificateChain()[0]
	leaf, err := x509.CreateCertificate(rand.Reader, issued, intermediate, key.Public(), ca.IntermediateKey())
	if err != nil {
		t.Fatal(err)
	}
	self, err := x509.CreateCertificate(rand.Reader, issued, issued, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	root := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.RootCertificate().Raw}))
	for _, c := range []struct {
		name, host string
		chain      [][]byte
		want       string
	}{
		{"its own", "gw.lan", [][]byte{leaf, intermediate.Raw}, root},
		{"of another name", "other.lan", [][]byte{leaf, intermediate.Raw}, ""},
		{"of another authority", "gw.lan", [][]byte{self, intermediate.Raw}, ""},
	} {
		if got := ownRoot(own, c.host, c.chain); got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	if public := provision(t, "gw.example.com {\n model_gateway\n}").addresses.sites(); public.pki != nil {
		t.Error("a site with a public certificate has an authority of its own")
	}
}
