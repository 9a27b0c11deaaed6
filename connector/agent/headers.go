package agent

import (
	"net/http"
	"net/textproto"
	"strings"
)

// identity is a value that all requests share; nobody changes it.
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

// notForUpstream tells whether a request field speaks about the client or
// carries its secrets. Model servers refuse foreign origins, and none of them
// has a use for the rest. Fields of one connection are never sent on.
func notForUpstream(name string) bool {
	switch name {
	case "Cookie", "Expect", "Forwarded", "Origin", "Referer", "Via", "X-Api-Key", "X-Real-Ip":
		return true // Expect: the body is here already
	}
	return strings.HasPrefix(name, "X-Forwarded-")
}

// notForClient tells whether an answer's field is of one connection only (RFC
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
