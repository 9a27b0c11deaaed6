package link

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
)

// appendFields appends header fields, one line for each value. Fields for which
// skip is true are left out, as are those of one connection only (RFC 9110
// §7.6.1) and the framing, which the caller writes. A field that cannot be sent
// is an error, or left out if lenient.
func appendFields(b []byte, h http.Header, lenient bool, skip func(name string) bool) ([]byte, error) {
	nominated := h["Connection"]
	for key, values := range h {
		name := textproto.CanonicalMIMEHeaderKey(key)
		if hopByHop(name) || skip(name) || len(nominated) > 0 && nominates(nominated, name) {
			continue
		}
		if !isToken(name) {
			if lenient {
				continue
			}
			return b, fmt.Errorf("sending a message: %w: a header name is not a token", ErrMalformed)
		}
		for _, v := range values {
			if !isFieldValue(v) {
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

// hopByHop reports whether a field is about one connection only or about framing.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Authenticate",
		"Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// private reports whether a request field is for the gateway alone: its client's
// secrets, and where its client comes from. "Expect" has been met already.
func private(name string) bool {
	switch name {
	case "Authorization", "Cookie", "Expect", "Origin", "X-Api-Key":
		return true
	}
	return false
}

// noneSkipped leaves out no field.
func noneSkipped(string) bool { return false }

// nominates reports whether a Connection field names another one.
func nominates(connection []string, name string) bool {
	for _, v := range connection {
		for option := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(option), name) {
				return true
			}
		}
	}
	return false
}

// isToken reports whether s is a token, RFC 9110 §5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' {
			continue
		}
		if strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// isFieldValue reports whether s can be a field value, RFC 9110 §5.5: anything
// but control characters, of which only the tab is allowed.
func isFieldValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

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

// HasMediaType reports whether the Content-Type of a header names a media type,
// whatever its case (RFC 9110 §8.3.1) and its parameters.
func HasMediaType(h http.Header, mediaType string) bool {
	value, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(value), mediaType)
}
