package upstream

import (
	"net/http"
	"net/textproto"
	"strings"
)

// identity is shared by all requests and never changed.
var identity = []string{"identity"}

// notForUpstream reports whether a request field is not passed to the model server:
// all but these describe the client, carry its secrets, or steer proxies on the way.
// The gateway has a list of its own, in serve/headers.go.
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

// copyAnswer adds to dst the fields of an upstream's answer that the client may see.
func copyAnswer(dst, src http.Header) {
	removeNominated(src)
	for name, values := range src {
		if !notForClient(name) {
			dst[name] = values
		}
	}
}

// removeNominated removes the fields that Connection names, and Connection: they are
// for one connection only.
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
