package link

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// ALPN is the application protocol of a tunnel (RFC 7301).
const ALPN = "postern/2"

// FormerALPN and FormerSubprotocol are those of former connectors. A gateway denies their hello.
const (
	FormerALPN        = "postern/1"
	FormerSubprotocol = "postern.1"
)

// The WebSocket endpoint for tunnels.
const (
	// WebSocketPath is the path of the WebSocket.
	WebSocketPath = "/.well-known/postern/tunnel"
	// Subprotocol is the subprotocol of the WebSocket (RFC 6455 §1.9).
	Subprotocol = "postern.2"
)

// ErrPin means that the server at the gateway's address is not the gateway that created
// the token.
var ErrPin = errors.New("the gateway's identity does not match the pin in the tunnel token")

// NewIdentity generates a gateway's long-lived tunnel key, as PKCS #8 DER. It is secret.
func NewIdentity() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating tunnel key: %w", err)
	}
	return x509.MarshalPKCS8PrivateKey(key)
}

// Identity returns a certificate for a tunnel key from [NewIdentity], and its pin.
// Connectors only check the key, so the certificate is self-signed, created each time, and
// does not expire.
func Identity(pkcs8 []byte) (cert tls.Certificate, pin string, err error) {
	parsed, err := x509.ParsePKCS8PrivateKey(pkcs8)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("reading tunnel key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return tls.Certificate{}, "", fmt.Errorf("reading tunnel key: it is a %T, not ECDSA", parsed)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "Postern tunnel"},
		NotBefore:    time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280 §4.1.2.5: no expiry
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("creating tunnel certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("creating tunnel certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, Pin(leaf), nil
}

// Pin returns base64url of the SHA-256 of a certificate's public key
// (SubjectPublicKeyInfo, as in RFC 7469 §2.4).
func Pin(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// CheckPin checks the form of a pin.
func CheckPin(pin string) error {
	b, err := base64.RawURLEncoding.DecodeString(pin)
	if err != nil || len(b) != sha256.Size {
		return errors.New("its pin is not a SHA-256 in base64url")
	}
	return nil
}

// Fingerprint returns the fingerprint of a device with this secret at the gateway with
// this pin, like "3f9a 07c2 b1d4 5e60". Both ends compute it. It differs for a man in the
// middle, and for another device with the same code. Its 64 bits cannot be searched
// during the lifetime of a code.
func Fingerprint(pin, secret string) string {
	hidden := sha256.Sum256([]byte(secret))
	sum := sha256.Sum256([]byte("postern pairing\x00" + pin + "\x00" + string(hidden[:])))
	return fmt.Sprintf("%x %x %x %x", sum[0:2], sum[2:4], sum[4:6], sum[6:8])
}

// GatewayTLS returns the gateway's TLS configuration. Session tickets are disabled, as
// connectors do not use them.
func GatewayTLS(cert tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates:           []tls.Certificate{cert},
		NextProtos:             []string{ALPN, FormerALPN},
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
	}
}

// ConnectorTLS returns the connector's TLS configuration. It only trusts the key with the
// given pin. A handshake with another key fails with [ErrPin]. If preauth is not "", the
// ClientHello carries it.
func ConnectorTLS(preauth, pin string) *tls.Config {
	protocols := []string{ALPN}
	if preauth != "" {
		protocols = append(protocols, PreauthProtocol+preauth)
	}
	return &tls.Config{
		NextProtos: protocols,
		MinVersion: tls.VersionTLS13,
		// VerifyConnection checks the public key. The handshake proves that the other side holds the private one.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || Pin(state.PeerCertificates[0]) != pin {
				return ErrPin
			}
			return nil
		},
	}
}
