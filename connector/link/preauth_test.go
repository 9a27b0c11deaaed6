package link

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
)

func TestPreauth(t *testing.T) {
	t.Parallel()
	token := Token{Pin: "pin", Connector: "con.1", Secret: "secret"}
	hash := sha256.Sum256([]byte(token.Secret))
	text := Preauth(token)
	id, mac, ok := ParsePreauth(text)
	if !ok || id != token.Connector || !CheckPreauth(token.Pin, id, hash[:], mac) {
		t.Fatalf("%q is of %q, %v", text, id, ok)
	}
	if strings.Contains(text, token.Secret) || strings.Contains(text, base64.RawURLEncoding.EncodeToString(hash[:])) {
		t.Errorf("%q has the secret", text)
	}
	other := sha256.Sum256([]byte("other"))
	if CheckPreauth("other", id, hash[:], mac) || CheckPreauth(token.Pin, "con.2", hash[:], mac) ||
		CheckPreauth(token.Pin, id, other[:], mac) {
		t.Error("it is valid for another gateway, connector or secret")
	}
	if got := ConnectorTLS(text, "pin").NextProtos; !slices.Equal(got, []string{ALPN, PreauthProtocol + text}) {
		t.Errorf("the protocols are %q", got)
	}
	token.Connector = strings.Repeat("x", 250)
	for what, token := range map[string]Token{"a long id": token, "no id": {Pin: "pin"}} {
		if got := Preauth(token); got != "" || len(ConnectorTLS(got, "pin").NextProtos) != 1 {
			t.Errorf("%s gives %q", what, got)
		}
	}
}

func FuzzParsePreauth(f *testing.F) {
	for _, s := range []string{
		"", ".", "con_1", "con_1.AAAAAAAAAAAAAAAAAAAAAA", "con_1.AAAAAAAAAAAAAAAAAAAAAB",
		".AAAAAAAAAAAAAAAAAAAAAA", "a.b.c", "0.0000000000000000\r00000A",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, mac, ok := ParsePreauth(s)
		if !ok {
			return
		}
		if id+"."+base64.RawURLEncoding.EncodeToString(mac) != s || id == "" || len(mac) != preauthBytes {
			t.Errorf("%q is %q and %x", s, id, mac)
		}
	})
}
