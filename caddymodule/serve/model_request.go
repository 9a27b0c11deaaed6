package serve

import (
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/turns"
)

// modelRequest is a request for a model, which Translator passes to Router for each attempt.
type modelRequest struct {
	exchange   *Exchange
	deployment store.Deployment // when the request was read
	header     http.Header      // the client's
	size       int64            // of the client's body, in bytes
	call       dialect.Call
	sizes      []tokens.Size // of the prompt, through the connectors of deployment; nil: not counted
	room       int64         // limit of the answer after a refusal; 0: none
	judge      bool          // the gateway asks about an answer: without limits, and whatever the key may use
	answer     *answer       // for headers about limits

	arrived  time.Time      // when Router got the first attempt
	waited   time.Duration  // in queues, by all attempts
	hadPlace bool           // an attempt has had a place: the next ones may always wait
	place    *turns.Place   // of the attempt; nil: none
	response *http.Response // from Router, nil if no model server has answered the last attempt
}

// modelRequestOf returns the model request that Translator has passed on with r.
func modelRequestOf(r *http.Request) (*modelRequest, error) {
	if ex, err := exchangeOf(r); err == nil && ex.passed != nil {
		return ex.passed, nil
	}
	return nil, errOrder
}

// media returns the call if it is one of rerank, audio or images, else nil.
func (m *modelRequest) media() *dialect.MediaCall {
	media, _ := m.call.(*dialect.MediaCall)
	return media
}

// hasLeft reports whether bytes of a form have left the gateway: a large file is sent at most once.
func (m *modelRequest) hasLeft() bool {
	media := m.media()
	return media != nil && media.IsForm() && m.exchange.attempts.begun()
}

// release ends an attempt: it closes the answer, and leaves the place. More calls have no effect.
func (m *modelRequest) release() {
	if m.response != nil {
		m.response.Body.Close()
	}
	m.exchange.attempts.end()
	switch {
	case m.place == nil:
	case m.response == nil && m.exchange.attempts.unserved():
		m.leaveUnused()
	default:
		m.place.Leave()
		m.place = nil
	}
}

// leaveUnused leaves the place of a request that no model server has seen.
func (m *modelRequest) leaveUnused() {
	m.place.Unused()
	m.place = nil
}

// upstream returns the header and the body of the upstream's request. Of the
// client's fields only trace context passes (W3C Trace Context §3). The connector has
// a list of its own, in connector/upstream/headers.go.
func (m *modelRequest) upstream(model string) (http.Header, *dialect.Segments) {
	h := http.Header{"Content-Type": contentJSON, "Accept": contentJSON}
	if m.call.Streamed() {
		h["Accept"] = contentEventStream
	}
	if media := m.media(); media != nil {
		h["Accept"] = anyContent
		if media.IsForm() {
			h["Content-Type"] = m.header["Content-Type"] // with the boundary
		}
	}
	for _, name := range [...]string{"Traceparent", "Tracestate"} {
		if v := m.header[name]; v != nil {
			h[name] = v
		}
	}
	return h, m.call.Body(model)
}
