package link

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// appendFields appends header fields, one line for each value. It leaves out fields for
// which skip is true, hop-by-hop fields (RFC 9110 §7.6.1) and the framing, which the
// caller writes. An invalid field is an error, or left out if lenient.
func appendFields(b []byte, h http.Header, lenient bool, skip func(name string) bool) ([]byte, error) {
	nominated := h["Connection"]
	for key, values := range h {
		name := textproto.CanonicalMIMEHeaderKey(key)
		if hopByHop(name) || skip(name) || httpguts.HeaderValuesContainsToken(nominated, name) {
			continue
		}
		if !httpguts.ValidHeaderFieldName(name) {
			if lenient {
				continue
			}
			return b, fmt.Errorf("sending a message: %w: a header name is not a token", ErrMalformed)
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				if lenient {
					continue
				}
				return b, fmt.Errorf("sending a message: %w: the value of header %s has control characters", ErrMalformed, name)
			}
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, v...)
			b = append(b, "\r\n"...)
		}
	}
	return b, nil
}

// hopByHop reports whether a field is hop-by-hop or part of the framing.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Authenticate",
		"Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// private reports whether a request field is for the gateway alone: the secrets and the
// origin of its client, and "Expect", which the gateway handles.
func private(name string) bool {
	switch name {
	case "Authorization", "Cookie", "Expect", "Origin", "X-Api-Key":
		return true
	}
	return false
}

// noneSkipped leaves out no field.
func noneSkipped(string) bool { return false }

// isTarget reports whether s is an origin-form request target, RFC 9112 §3.2.1,
// of visible ASCII only.
func isTarget(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return false
		}
	}
	return s != "" && s[0] == '/'
}

// HasMediaType reports whether the Content-Type of a header is a media type. It ignores
// case (RFC 9110 §8.3.1) and parameters.
func HasMediaType(h http.Header, mediaType string) bool {
	value, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(value), mediaType)
}
