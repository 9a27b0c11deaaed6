package link

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// A preauthentication marks a connection as probably a connector's before the handshake.
// The gateway reserves handshakes for such connections. It proves the connector's secret
// but can be replayed by an observer, so it grants nothing else.
const (
	// PreauthProtocol is the prefix of the ALPN protocol that carries it over QUIC. A
	// gateway never selects that.
	PreauthProtocol = "postern-preauth/"
	// PreauthHeader carries it in the request that opens a WebSocket.
	PreauthHeader = "Postern-Preauth"
	// PreauthPairing is the id in the preauthentication of a device with a pairing code. It is sent over HTTPS
	// only, to a server with a valid certificate: a reader could find the code of 40 bits by trying.
	PreauthPairing = "pairing"
)

const (
	preauthBytes   = 16
	maxALPN        = 255 // bytes, RFC 7301 §3.1
	preauthContext = "postern preauth\x00"
)

// Preauth returns the preauthentication of a token's connector: its id, a dot, and
// base64url of the first 16 bytes of HMAC-SHA256, with the SHA-256 of the secret as
// key, of the gateway's pin and the id. It is "" if the id is empty or too long.
func Preauth(t Token) string {
	hash := sha256.Sum256([]byte(t.Secret))
	s := t.Connector + "." + base64.RawURLEncoding.EncodeToString(preauthMAC(t.Pin, t.Connector, hash[:]))
	if t.Connector == "" || len(PreauthProtocol)+len(s) > maxALPN {
		return ""
	}
	return s
}

// PreauthClaim returns the preauthentication of a device with a pairing code at the gateway with this
// pin. Case and surrounding white space of the code do not matter.
func PreauthClaim(pin, code string) string {
	return Preauth(Token{Connector: PreauthPairing, Secret: strings.ToUpper(strings.TrimSpace(code)), Pin: pin})
}

// ParsePreauth parses the result of [Preauth].
func ParsePreauth(s string) (connector string, mac []byte, ok bool) {
	dot := strings.LastIndexByte(s, '.')
	// The decoder skips line breaks, so the length is checked too.
	if dot < 1 || len(s)-dot-1 != base64.RawURLEncoding.EncodedLen(preauthBytes) ||
		len(PreauthProtocol)+len(s) > maxALPN {
		return "", nil, false
	}
	mac, err := base64.RawURLEncoding.Strict().DecodeString(s[dot+1:])
	return s[:dot], mac, err == nil && len(mac) == preauthBytes
}

// CheckPreauth reports whether mac belongs to a connector at the gateway with this pin.
// secretHash is the SHA-256 of the connector's secret, or of the pairing code.
func CheckPreauth(pin, connector string, secretHash, mac []byte) bool {
	return hmac.Equal(mac, preauthMAC(pin, connector, secretHash))
}

func preauthMAC(pin, connector string, secretHash []byte) []byte {
	h := hmac.New(sha256.New, secretHash)
	h.Write([]byte(preauthContext + pin + "\x00" + connector))
	return h.Sum(nil)[:preauthBytes]
}
