package upstream

import (
	"net/http"
	"net/textproto"
	"strings"
)

// forUpstream lists the request fields that model servers receive. All other fields describe
// the client, contain its secrets, or are for proxies. The gateway's list is in serve/model_request.go.
var forUpstream = []string{"Accept", "Content-Type", "Traceparent", "Tracestate", "User-Agent"}

// requestHeader returns the fields of a request of the tunnel that the model server receives.
func requestHeader(h http.Header) http.Header {
	removeNominated(h)
	out := http.Header{
		"Accept-Encoding": {"identity"}, // a compressed stream cannot be read event by event
	}
	for _, name := range forUpstream {
		if values := h[name]; len(values) > 0 {
			out[name] = values
		}
	}
	return out
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
