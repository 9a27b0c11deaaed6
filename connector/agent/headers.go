package agent

import (
	"net/http"
	"net/textproto"
	"strings"
)

// hopByHop are the header fields that belong to one connection only, RFC 9110
// §7.6.1, with the ones that older software uses.
var hopByHop = []string{
	"Connection",
	"Keep-Alive",
	"Proxy-Authenticate",
	"Proxy-Authorization",
	"Proxy-Connection",
	"Te",
	"Trailer",
	"Transfer-Encoding",
	"Upgrade",
}

// notForUpstream are request fields that speak about the client or carry its
// secrets. Model servers refuse foreign origins, and none of them has a use for
// the rest.
var notForUpstream = []string{
	"Authorization",
	"Content-Length", // set from the body that was read
	"Cookie",
	"Expect", // the body is here already
	"Forwarded",
	"Origin",
	"Referer",
	"Via",
	"X-Api-Key",
	"X-Real-Ip",
}

// notForClient are answer fields that are the gateway's to set, or that would
// open a browser's access to it.
var notForClient = []string{
	"Alt-Svc",
	"Date",
	"Location", // names an address that only the upstream's network knows
	"Server",
	"Set-Cookie",
	"X-Accel-Buffering",
}

// Values that many requests share; nobody changes them.
var (
	identity = []string{"identity"}
	none     = []string{""}
)

// cleanRequest prepares a request's header for the upstream.
func cleanRequest(h http.Header, authorization string) {
	removeHopByHop(h)
	remove(h, notForUpstream)
	for name := range h {
		if strings.HasPrefix(name, "X-Forwarded-") {
			delete(h, name)
		}
	}
	// No compression: a compressed stream cannot be read event by event.
	h["Accept-Encoding"] = identity
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = none // keeps net/http from adding its own
	}
	if authorization != "" {
		h["Authorization"] = []string{authorization}
	}
}

// copyAnswer adds to dst what of the upstream's answer header the client may see.
func copyAnswer(dst, src http.Header) {
	removeHopByHop(src)
	remove(src, notForClient)
	for name, values := range src {
		if !strings.HasPrefix(name, "Access-Control-") {
			dst[name] = values
		}
	}
}

// removeHopByHop removes the fixed fields and those that Connection names.
func removeHopByHop(h http.Header) {
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			if name = textproto.TrimString(name); name != "" {
				h.Del(name)
			}
		}
	}
	remove(h, hopByHop)
}

// remove deletes canonical names.
func remove(h http.Header, names []string) {
	for _, name := range names {
		delete(h, name)
	}
}
