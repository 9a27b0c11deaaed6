package serve

import (
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"github.com/postern-dev/postern/connector/link"
)

// secretPrefixes are the prefixes of API keys, management tokens, tunnel tokens and pairing codes.
var secretPrefixes = [...]string{"sk-svc-", "pmt_", "ptt_", "PAIR-"}

// bareSecret is the number of letters and digits of a secret without a prefix: the secret of a session
// of the console or of an invitation.
const bareSecret = 43

// hiddenByCaddy are the headers that Caddy redacts in its log.
var hiddenByCaddy = [...]string{"Authorization", "Cookie", "Proxy-Authorization"}

// redacted replaces a secret in the log.
const redacted = "REDACTED"

// CarriesSecret reports whether a request may contain a secret that Caddy does not
// redact. This includes every request without a key: Caddy logs headers such as
// X_Api_Key, with an underscore, but drops them before the handlers run.
func CarriesSecret(r *http.Request) bool {
	if SentKey(r.Header) == "" {
		return true
	}
	for name, values := range r.Header {
		if isSecretHeader(name, values) {
			return true
		}
	}
	return containsSecret(r.RequestURI)
}

// WithoutSecrets returns a copy of the request that is safe to log.
func WithoutSecrets(r *http.Request) *http.Request {
	shown := *r
	shown.Header = r.Header.Clone()
	for name, values := range shown.Header {
		if isSecretHeader(name, values) {
			shown.Header[name] = []string{redacted}
		}
	}
	shown.RequestURI = redactURI(r.RequestURI)
	return &shown
}

// redactURI redacts a path or a query that contains a secret.
func redactURI(uri string) string {
	path, query, _ := strings.Cut(uri, "?")
	switch {
	case containsSecret(path):
		return redacted
	case containsSecret(query):
		return path + "?" + redacted
	}
	return uri
}

// isSecretHeader reports whether a header must be redacted and Caddy does not do so. A
// preauthentication can be replayed. The preauthentication of a device also reveals its pairing code to
// a search, as the code has only 40 bits.
func isSecretHeader(name string, values []string) bool {
	if slices.Contains(hiddenByCaddy[:], name) {
		return false
	}
	return name == link.PreauthHeader || slices.Contains(KeyHeaders[:], name) ||
		slices.ContainsFunc(values, containsSecret)
}

// containsSecret reports whether text contains a secret, even if it is percent-encoded
// repeatedly.
func containsSecret(text string) bool {
	if strings.Contains(text, "%") {
		text = decoded(text)
	}
	for _, prefix := range secretPrefixes {
		if strings.Contains(text, prefix) {
			return true
		}
	}
	return containsBareSecret(text)
}

// containsBareSecret reports whether text has as many letters and digits in a row as a secret.
func containsBareSecret(text string) bool {
	run := 0
	for i := range len(text) {
		switch c := text[i]; {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
			run++
			continue
		case run == bareSecret:
			return true
		}
		run = 0
	}
	return run == bareSecret
}

// decoded removes percent-encoding, including repeated encoding. It works in one
// pass, because unauthenticated clients control the text, and skips invalid
// encoding, as some parsers do.
func decoded(text string) string {
	out := make([]byte, 0, len(text))
	for i := range len(text) {
		out = append(out, text[i])
		for n := len(out); n >= 3 && out[n-3] == '%'; n = len(out) {
			if _, err := hex.Decode(out[n-3:n-2], out[n-2:]); err != nil {
				break
			}
			out = out[:n-2] // the decoded byte may complete another escape
		}
	}
	return string(out)
}
