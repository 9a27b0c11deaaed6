package link

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

const (
	// ErrorField is the field of an answer, or the trailer, with the name of a [Failure].
	ErrorField = "Postern-Error"
	// ownFields is the prefix of the protocol's fields. Model servers and clients cannot send them.
	ownFields = "Postern-"
)

// passed returns the fields of a header that the other end gets: not the hop-by-hop fields (RFC 9110 §7.6.1), the
// framing, and the fields that skip reports. An invalid field is an error, or left out if lenient.
func passed(h http.Header, lenient bool, skip func(name string) bool) (http.Header, error) {
	out, nominated := make(http.Header, len(h)+1), h["Connection"]
	for key, values := range h {
		name := textproto.CanonicalMIMEHeaderKey(key)
		if hopByHop(name) || skip(name) || httpguts.HeaderValuesContainsToken(nominated, name) {
			continue
		}
		valid := httpguts.ValidHeaderFieldName(name)
		for _, v := range values {
			valid = valid && httpguts.ValidHeaderFieldValue(v)
		}
		switch {
		case valid && out[name] == nil:
			out[name] = values
		case valid:
			out[name] = slices.Concat(out[name], values)
		case !lenient:
			return nil, fmt.Errorf("sending a message: %w: a header field has an invalid name or value", ErrMalformed)
		}
	}
	return out, nil
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

// own reports whether a field belongs to the protocol.
func own(name string) bool { return strings.HasPrefix(name, ownFields) }

// isTarget reports whether s is a request target in origin form (RFC 9112 §3.2.1), of visible ASCII only.
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
