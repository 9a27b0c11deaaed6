package upstream

import (
	"net/http"
	"net/textproto"
	"strings"
)

// identity is shared by all requests and must not be modified.
var identity = []string{"identity"}

// notForUpstream reports whether a request field is withheld from model servers. All
// but these describe the client, contain its secrets, or are for proxies. The gateway
// has a list of its own, in serve/route.go.
func notForUpstream(name string) bool {
	switch name {
	case "Accept", "Accept-Encoding", "Authorization", "Content-Type", "Traceparent", "Tracestate", "User-Agent":
		return false
	}
	return true
}

// notForClient reports whether an answer's field is hop-by-hop (RFC 9110 §7.6.1, and
// obsolete ones), is set by the gateway, or would affect browsers' access to it.
func notForClient(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade":
		return true
	case "Alt-Svc", "Date", "Server", "Set-Cookie", "X-Accel-Buffering",
		"Location": // an address in the upstream's network
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

// removeNominated removes Connection, and the hop-by-hop fields that it names.
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
