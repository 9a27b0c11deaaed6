package upstream

import (
	"net/http"
	"strings"
)

// forUpstream lists the request fields that model servers receive. All other fields describe
// the client, contain its secrets, or are for proxies. The gateway's list is in serve/model_request.go.
var forUpstream = []string{"Accept", "Content-Type", "Traceparent", "Tracestate", "User-Agent"}

// requestHeader returns the fields of a request of the tunnel that the model server receives.
func requestHeader(h http.Header) http.Header {
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

// notForClient reports whether an answer's field is set by the gateway, or would affect browsers' access to it. The
// tunnel removes hop-by-hop fields.
func notForClient(name string, _ []string) bool {
	switch name {
	case "Alt-Svc", "Date", "Server", "Set-Cookie", "X-Accel-Buffering",
		"Location": // an address in the upstream's network
		return true
	}
	return strings.HasPrefix(name, "Access-Control-")
}
