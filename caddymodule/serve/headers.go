package serve

import "net/http"

// upstreamHeader returns the header of the upstream's request. Of the client's
// fields only trace context passes (W3C Trace Context §3). The connector has a list
// of its own, in connector/upstream/headers.go.
func upstreamHeader(client http.Header, stream bool) http.Header {
	h := http.Header{"Content-Type": contentJSON, "Accept": contentJSON}
	if stream {
		h["Accept"] = contentEventStream
	}
	for _, name := range [...]string{"Traceparent", "Tracestate"} {
		if v := client[name]; v != nil {
			h[name] = v
		}
	}
	return h
}
