package signin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/go-webauthn/webauthn/protocol/webauthncbor"
)

// authenticator is a browser with a passkey. It has one key, and follows WebAuthn §6.3, unless a
// field makes it fail.
type authenticator struct {
	origin  string // of the page
	party   string // "": what the options ask for
	key     *ecdsa.PrivateKey
	id      []byte
	handle  []byte // of the user; known after create
	counter uint32
	flags   byte
}

// WebAuthn §6.1.
const (
	flagPresent  = 1 << 0
	flagVerified = 1 << 2
	flagKey      = 1 << 6 // a key is attached
)

func newAuthenticator(t testing.TB, origin string) *authenticator {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return &authenticator{origin: origin, key: key, id: []byte(rand.Text()), flags: flagPresent | flagVerified}
}

var b64 = base64.RawURLEncoding

// createOptions and getOptions are the options that a page reads.
type createOptions struct {
	PublicKey struct {
		Challenge string
		RP        struct{ ID, Name string }
		User      struct{ ID, Name, DisplayName string }
		Params    []struct{ Alg int } `json:"pubKeyCredParams"`
		Timeout   int
		Exclude   []struct{ ID string } `json:"excludeCredentials"`
		Selection struct {
			ResidentKey        string
			RequireResidentKey bool
			UserVerification   string
		} `json:"authenticatorSelection"`
		Attestation string
	}
}

type getOptions struct {
	PublicKey struct {
		Challenge        string
		RPID             string
		Timeout          int
		UserVerification string
		AllowCredentials []json.RawMessage
	}
}

func read[T any](t testing.TB, options json.RawMessage) (o T) {
	t.Helper()
	must(t, json.Unmarshal(options, &o))
	return o
}

// create answers navigator.credentials.create.
func (a *authenticator) create(t testing.TB, options json.RawMessage) []byte {
	t.Helper()
	o := read[createOptions](t, options).PublicKey
	var err error
	if a.handle, err = b64.DecodeString(o.User.ID); err != nil {
		t.Fatal(err)
	}
	public, err := a.key.PublicKey.Bytes() // 4, X, Y
	must(t, err)
	// RFC 9053 §7.1.1: an EC2 key for ES256 on P-256.
	cose := encodeCBOR(t, map[int]any{1: 2, 3: -7, -1: 1, -2: public[1:33], -3: public[33:]})
	data := a.data(o.RP.ID, a.flags|flagKey)
	data = append(data, make([]byte, 16)...) // AAGUID
	data = binary.BigEndian.AppendUint16(data, uint16(len(a.id)))
	data = append(append(data, a.id...), cose...)
	object := encodeCBOR(t, map[string]any{"fmt": "none", "attStmt": map[string]any{}, "authData": data})
	return a.credential(t, map[string]any{
		"clientDataJSON":    a.clientData(t, "webauthn.create", o.Challenge),
		"attestationObject": b64.EncodeToString(object),
		"transports":        []string{"internal"},
	})
}

// get answers navigator.credentials.get.
func (a *authenticator) get(t testing.TB, options json.RawMessage) []byte {
	t.Helper()
	o := read[getOptions](t, options).PublicKey
	a.counter++
	data := a.data(o.RPID, a.flags)
	clientData := a.clientData(t, "webauthn.get", o.Challenge)
	raw, err := b64.DecodeString(clientData)
	must(t, err)
	clientHash := sha256.Sum256(raw)
	signed := sha256.Sum256(append(append([]byte(nil), data...), clientHash[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, a.key, signed[:])
	must(t, err)
	return a.credential(t, map[string]any{
		"clientDataJSON":    clientData,
		"authenticatorData": b64.EncodeToString(data),
		"signature":         b64.EncodeToString(signature),
		"userHandle":        b64.EncodeToString(a.handle),
	})
}

// data is the authenticator data without a key.
func (a *authenticator) data(party string, flags byte) []byte {
	if a.party != "" {
		party = a.party
	}
	hash := sha256.Sum256([]byte(party))
	return binary.BigEndian.AppendUint32(append(hash[:], flags), a.counter)
}

func (a *authenticator) clientData(t testing.TB, kind, challenge string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"type": kind, "challenge": challenge, "origin": a.origin,
		"crossOrigin": false,
	})
	must(t, err)
	return b64.EncodeToString(text)
}

func (a *authenticator) credential(t testing.TB, response map[string]any) []byte {
	t.Helper()
	id := b64.EncodeToString(a.id)
	text, err := json.Marshal(map[string]any{
		"id": id, "rawId": id, "type": "public-key", "response": response,
		"authenticatorAttachment": "platform",
		// Some password managers send this without a request.
		"clientExtensionResults": map[string]any{"credProps": map[string]any{"rk": true}},
	})
	must(t, err)
	return text
}

func encodeCBOR(t testing.TB, v any) []byte {
	t.Helper()
	out, err := webauthncbor.Marshal(v)
	must(t, err)
	return out
}
