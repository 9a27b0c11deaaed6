package caddymodule

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddypki"
	"github.com/caddyserver/caddy/v2/modules/caddytls"
	"github.com/caddyserver/certmagic"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/postern-dev/postern/caddymodule/downloads"
)

// trust decides whether other machines can verify a site. It remembers the result for the
// last certificate of each host, since reading all public roots takes milliseconds.
type trust struct {
	mu      sync.Mutex
	results map[string]chainTrust // by host
}

// chainTrust is which authority vouches for a chain of certificates.
type chainTrust struct {
	leaf   [sha256.Size]byte // hash of the first certificate
	public bool
	root   string // of Caddy's own authority, as PEM; "": another one
}

// of reports whether a machine can verify a site: the site has a certificate of a public authority, or is plain HTTP on
// the same machine. The roots of this machine do not count: they may include the gateway's own authority. If that has
// issued the certificate, of returns its root as PEM.
func (t *trust) of(s site, own *caddypki.PKI) (verified bool, root string) {
	if !strings.HasPrefix(s.url, "https://") {
		return downloads.IsLoopback(s.host), ""
	}
	chain := certificateOf(s.host)
	if len(chain) == 0 { // not obtained yet
		return certmagic.SubjectQualifiesForPublicCert(s.host), ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	leaf := sha256.Sum256(chain[0])
	known, ok := t.results[s.host]
	if !ok || known.leaf != leaf {
		if t.results == nil {
			t.results = make(map[string]chainTrust)
		}
		known = chainTrust{leaf: leaf, public: vouches(publicRoots(), s.host, chain)}
		if own != nil && !known.public {
			known.root = ownRoot(own, s.host, chain)
		}
		t.results[s.host] = known
	}
	return known.public, known.root
}

// certificateOf returns the chain of certificates that Caddy presents for a host, as DER.
func certificateOf(host string) [][]byte {
	for _, c := range caddytls.AllMatchingCertificates(host) {
		if len(c.Certificate.Certificate) > 0 {
			return c.Certificate.Certificate
		}
	}
	return nil
}

// ownRoot returns the root of the authority of Caddy that vouches for a chain, as PEM; "" if none does.
func ownRoot(own *caddypki.PKI, host string, chain [][]byte) string {
	for _, ca := range own.CAs {
		root, roots := ca.RootCertificate(), x509.NewCertPool()
		if roots.AddCert(root); vouches(roots, host, chain) {
			return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}))
		}
	}
	return ""
}

// publicRoots returns the roots of the public authorities.
func publicRoots() *x509.CertPool {
	roots := x509.NewCertPool()
	for root := range bundle.Roots() {
		if c, err := x509.ParseCertificate(root.Certificate); err == nil {
			roots.AddCertWithConstraint(c, root.Constraint)
		}
	}
	return roots
}

// vouches reports whether an authority vouches for a chain.
func vouches(roots *x509.CertPool, host string, chain [][]byte) bool {
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return false
	}
	options := x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: x509.NewCertPool()}
	for _, der := range chain[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			options.Intermediates.AddCert(c)
		}
	}
	_, err = leaf.Verify(options)
	return err == nil
}
