package caddymodule

import (
	"crypto/sha256"
	"crypto/x509"
	"strings"
	"sync"

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

// chainTrust is whether a public authority vouches for a chain of certificates.
type chainTrust struct {
	leaf   [sha256.Size]byte // hash of the first certificate
	public bool
}

// verified reports whether a machine can verify the site at a URL: the site has a certificate
// of a public authority, or is plain HTTP on the same machine. The roots of this machine do
// not count: they may include the gateway's own authority.
func (t *trust) verified(host, url string) bool {
	if !strings.HasPrefix(url, "https://") {
		return downloads.IsLoopback(host)
	}
	chain := certificateOf(host)
	if len(chain) == 0 { // not obtained yet
		return certmagic.SubjectQualifiesForPublicCert(host)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	leaf := sha256.Sum256(chain[0])
	known, ok := t.results[host]
	if !ok || known.leaf != leaf {
		if t.results == nil {
			t.results = make(map[string]chainTrust)
		}
		known = chainTrust{leaf, isPublic(host, chain)}
		t.results[host] = known
	}
	return known.public
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

// isPublic reports whether a public authority vouches for a chain.
func isPublic(host string, chain [][]byte) bool {
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return false
	}
	options := x509.VerifyOptions{DNSName: host, Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
	for _, der := range chain[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			options.Intermediates.AddCert(c)
		}
	}
	for root := range bundle.Roots() {
		if c, err := x509.ParseCertificate(root.Certificate); err == nil {
			options.Roots.AddCertWithConstraint(c, root.Constraint)
		}
	}
	_, err = leaf.Verify(options)
	return err == nil
}
