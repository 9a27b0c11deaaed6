package serve

import (
	"net/http"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/store"
)

// modelRequest is a request for a model, which Translator passes to Router. Router does not write it.
type modelRequest struct {
	exchange   *Exchange
	deployment store.Deployment // when the request was read
	header     http.Header      // the client's
	size       int64            // of the client's body, in bytes
	call       dialect.Call
	sizes      []tokens.Size // of the prompt, through the connectors of deployment; nil: not counted
	room       int64         // limit of the answer after a refusal; 0: none
	unstreamed bool          // the answer shall not be a stream, although the client wants one
	large      *largePermit  // of the body; nil if it is small
	answer     *answer       // for headers about limits

	receive func(*http.Response) (retry *dialect.Error) // see clientRequest.receive

	followUp func() // called after receive, within the turn of the request; may be nil
	within   string // the deployment in whose turn the request is sent, without limits or a check of the key; "": none
}

// modelRequestOf returns the model request that Translator has passed on with r.
func modelRequestOf(r *http.Request) (*modelRequest, error) {
	if ex, err := exchangeOf(r); err == nil && ex.passed != nil {
		return ex.passed, nil
	}
	return nil, errOrder
}

// upstream returns the header and the body of the upstream's request. Of the
// client's fields only trace context passes (W3C Trace Context §3). The connector has
// a list of its own, in connector/upstream/headers.go.
func (m *modelRequest) upstream(model string) (http.Header, *dialect.Segments) {
	h := http.Header{"Content-Type": contentJSON, "Accept": contentJSON}
	if m.call.Streamed() && !m.unstreamed {
		h["Accept"] = contentEventStream
	}
	for _, name := range [...]string{"Traceparent", "Tracestate"} {
		if v := m.header[name]; v != nil {
			h[name] = v
		}
	}
	if m.unstreamed {
		return h, m.call.WholeBody(model)
	}
	return h, m.call.Body(model)
}
