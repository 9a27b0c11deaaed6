package serve

import (
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
)

// secretPrefixes are what secrets begin with: API keys, management tokens and
// tunnel tokens.
var secretPrefixes = [...]string{"sk-svc-", "pmt_", "ptt_"}

// hiddenByCaddy are the headers that Caddy hides in its log.
var hiddenByCaddy = [...]string{"Authorization", "Cookie", "Proxy-Authorization"}

// redacted replaces a secret in the log.
const redacted = "REDACTED"

// CarriesSecret reports whether a request has a secret, or something sent as one,
// where Caddy does not hide it. It may have one if it seems to have no key at
// all: Caddy logs headers with an underscore in their names, such as X_Api_Key,
// and drops them before any handler runs.
func CarriesSecret(r *http.Request) bool {
	if SentKey(r.Header) == "" {
		return true
	}
	for name, values := range r.Header {
		if isSecretHeader(name, values) {
			return true
		}
	}
	return holdsSecret(r.RequestURI)
}

// WithoutSecrets returns a copy of the request that can be logged.
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

// redactURI hides the secrets in a request's URI.
func redactURI(uri string) string {
	path, query, hasQuery := strings.Cut(uri, "?")
	if path = redactParts(path, "/"); hasQuery {
		return path + "?" + redactParts(query, "&")
	}
	return path
}

// isSecretHeader reports whether a header is to be hidden, and not by Caddy.
func isSecretHeader(name string, values []string) bool {
	if slices.Contains(hiddenByCaddy[:], name) {
		return false
	}
	return slices.Contains(KeyHeaders[:], name) || slices.ContainsFunc(values, holdsSecret)
}

// holdsSecret reports whether a text has a secret in it, also percent-encoded,
// once or several times.
func holdsSecret(text string) bool {
	if strings.Contains(text, "%") {
		text = decoded(text)
	}
	for _, prefix := range secretPrefixes {
		if strings.Contains(text, prefix) {
			return true
		}
	}
	return false
}

// decoded is a text without percent-encoding, also where it was encoded twice. It
// takes one pass, as unauthenticated clients send such texts, and skips invalid
// encoding, as some readers do.
func decoded(text string) string {
	out := make([]byte, 0, len(text))
	for i := range len(text) {
		out = append(out, text[i])
		for n := len(out); n >= 3 && out[n-3] == '%'; n = len(out) {
			if _, err := hex.Decode(out[n-3:n-2], out[n-2:]); err != nil {
				break
			}
			out = out[:n-2] // with a byte that may be the last of another one
		}
	}
	return string(out)
}

// redactParts hides the parts of a path or query that hold a secret, but for
// the name of a parameter.
func redactParts(text, separator string) string {
	if !holdsSecret(text) {
		return text
	}
	parts := strings.Split(text, separator)
	for i, part := range parts {
		if !holdsSecret(part) {
			continue
		}
		parts[i] = redacted
		if name, _, ok := strings.Cut(part, "="); ok && !holdsSecret(name) {
			parts[i] = name + "=" + redacted
		}
	}
	return strings.Join(parts, separator)
}
