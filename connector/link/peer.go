package link

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
)

// PeerProof returns the secret in the hello of a gateway to another one of its cluster. It
// proves, for this connection alone, that the gateway has the cluster's key: base64url of
// HMAC-SHA256, with that key, of material exported from the connection (RFC 8446, section
// 7.5) for the gateway's name.
func PeerProof(key []byte, state tls.ConnectionState, name string) (string, error) {
	material, err := state.ExportKeyingMaterial("EXPORTER-postern-peer", []byte(name), sha256.Size)
	if err != nil {
		return "", fmt.Errorf("proving the membership in the cluster: %w", err)
	}
	h := hmac.New(sha256.New, key)
	h.Write(material)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)), nil
}

// CheckPeerProof reports whether a hello of a peer has the proof for this connection.
func CheckPeerProof(key []byte, state tls.ConnectionState, hello Hello) bool {
	want, err := PeerProof(key, state, hello.Peer)
	return err == nil && hmac.Equal([]byte(want), []byte(hello.Secret))
}
