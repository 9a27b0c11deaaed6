package upstream

import (
	"net/http"
	"net/textproto"
	"strings"
)

// identity is shared by all requests and never changed.
var identity = []string{"identity"}

// addressHeader prepares a request's header for the upstream, as far as sending
// it does not: the fields that are left out anyway are not touched.
func addressHeader(h http.Header, authorization string) {
	removeNominated(h)
	// No compression: a compressed stream cannot be read event by event.
	h["Accept-Encoding"] = identity
	if authorization != "" {
		h["Authorization"] = []string{authorization}
	} else {
		delete(h, "Authorization")
	}
}

// notForUpstream reports whether a request field is not among those that a model
// server needs. The others speak about the client, carry its secrets, or steer
// what is between here and the server.
func notForUpstream(name string) bool {
	switch name {
	case "Accept", "Accept-Encoding", "Authorization", "Content-Type", "Traceparent", "Tracestate", "User-Agent":
		return false
	}
	return true
}

// notForClient reports whether an answer's field is of one connection only (RFC
// 9110 §7.6.1, with the ones that older software uses), is the gateway's to set,
// or would open a browser's access to it.
func notForClient(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	case "Alt-Svc", "Date", "Server", "Set-Cookie", "X-Accel-Buffering",
		"Location": // names an address that only the upstream's network knows
		return true
	}
	return strings.HasPrefix(name, "Access-Control-")
}

// copyAnswer adds to dst what of the upstream's answer header the client may see.
func copyAnswer(dst, src http.Header) {
	removeNominated(src)
	for name, values := range src {
		if !notForClient(name) {
			dst[name] = values
		}
	}
}

// removeNominated removes the fields that Connection names, and Connection: what
// it asks for is no business of the next connection.
func removeNominated(h http.Header) {
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			if name = textproto.TrimString(name); name != "" {
				h.Del(name)
			}
		}
	}
	delete(h, "Connection")
}
