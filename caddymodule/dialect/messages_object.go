package dialect

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"net/http"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// appendMessageHead appends a message up to its first block.
func appendMessageHead(b []byte, id, model string) []byte {
	return jsonscan.Appendf(b, `{"id":%q,"type":"message","role":"assistant","model":%q,"content":[`, id, model)
}

// appendTail appends the end of the message, after its last block. reason is "" if it has
// not ended.
func (m *messagesEncoder) appendTail(b []byte, reason, matched string, u Usage) []byte {
	b = append(m.appendStop(append(b, "],"...), reason, matched), `,"usage":`...)
	return append(appendMessageUsage(b, u, `"cache_creation":null,"server_tool_use":null,"service_tier":"standard"`,
		`,"inference_geo":null,"speed":null`), '}')
}

// appendMessageUsage appends a message's usage with constant members that SDKs' types
// require. Unlike the upstream's, its input tokens exclude cached ones.
func appendMessageUsage(b []byte, u Usage, middle, end string) []byte {
	cached := max(u.CachedTokens, 0)
	b = jsonscan.Appendf(b, `{"input_tokens":%d,"output_tokens":%d,"cache_creation_input_tokens":0,`+
		`"cache_read_input_tokens":%d,%s,"output_tokens_details":`,
		max(u.PromptTokens-cached, 0), max(u.CompletionTokens, 0), cached, middle)
	if u.ReasoningTokens > 0 {
		b = jsonscan.Appendf(b, `{"thinking_tokens":%d}`, u.ReasoningTokens)
	} else {
		b = append(b, "null"...)
	}
	return append(append(b, end...), '}')
}

// stopReason returns why the message ended.
func (m *messagesEncoder) stopReason(o outcome) string {
	switch {
	case m.refused || o.finish == finishFilter:
		return "refusal"
	case o.finish == finishLength && m.call.fillsWindow(o.usage):
		return "model_context_window_exceeded"
	case o.finish == finishLength:
		return "max_tokens"
	case m.calls:
		return "tool_use"
	case o.finish == finishStop && o.matched != "":
		return "stop_sequence"
	}
	return "end_turn"
}

// fillsWindow reports whether an answer that was cut has filled the context window or its room there, not its limit.
func (r *reply) fillsWindow(u Usage) bool {
	const rest = 16 // tokens that a model server may leave free
	if r.room > 0 || r.env.Info == nil || u.Estimated || r.output > 0 && u.CompletionTokens >= r.output {
		return r.room > 0
	}
	window := r.env.Info.Window
	return window > 0 && u.PromptTokens+u.CompletionTokens >= int64(window-rest)
}

// appendStop appends the members about why a message ended. reason is "" if it has not
// ended.
func (m *messagesEncoder) appendStop(b []byte, reason, matched string) []byte {
	var details []byte
	if reason == "refusal" {
		details = jsonscan.Appendf(nil, `{"type":"refusal","category":null,"explanation":%n}`, string(m.refusal))
	}
	if reason != "stop_sequence" {
		matched = ""
	}
	b = jsonscan.Appendf(b, `"stop_reason":%n,"stop_sequence":%n,"stop_details":%n,"container":null`, reason,
		matched, details)
	if g := m.call.safeguard; g != nil && reason != "" {
		b = g.appendResults(b)
	}
	return b
}

// signer signs a thinking block while it is written. Clients discard messages with
// unsigned thinking. The signature only proves that the block is from this gateway. If
// the client omits thinking, the signature contains it, so that it can be restored from
// the history.
type signer struct {
	env     *Env
	mac     hash.Hash
	carry   bool   // the signature contains the thinking
	carried []byte // thinking for the signature
}

// newSigner returns the signer of a call's thinking.
func newSigner(call *reply) signer {
	return signer{env: call.env, carry: call.omitThinking}
}

// reset starts a block.
func (s *signer) reset() {
	if s.mac == nil {
		s.mac = hmac.New(sha256.New, s.env.SignatureKey)
	}
	s.mac.Reset()
	s.carried = s.carried[:0]
}

// add adds a piece of thinking.
func (s *signer) add(thinking string) {
	s.mac.Write([]byte(thinking))
	if s.carry {
		s.carried = append(s.carried, thinking...)
	}
}

// A signature without thinking is signatureMark, followed by the first signatureSize
// bytes of the HMAC-SHA256 of the thinking in base64url.
const (
	signatureMark = "gw1."
	signatureSize = 16
)

// appendSignature appends the signature of the block as a JSON string.
func (s *signer) appendSignature(b []byte) []byte {
	b = append(b, '"')
	if s.carry {
		return append(s.env.seal(b, carryingMark, s.carried), '"')
	}
	var sum [sha256.Size]byte
	mac := s.mac.Sum(sum[:0])[:signatureSize]
	b = base64.RawURLEncoding.AppendEncode(append(b, signatureMark...), mac)
	return append(b, '"')
}

// appendMessagesError appends an error object.
func appendMessagesError(b []byte, e *Error, requestID string) []byte {
	b = jsonscan.Appendf(b, `{"type":"error","error":{"type":%q,"message":%q`, messagesErrorType(e.Kind.status), e.Message)
	if e.details != "" {
		b = jsonscan.Appendf(b, `,"details":%s`, e.details)
	}
	return jsonscan.Appendf(b, `},"request_id":%q}`, requestID)
}

// messagesErrorTypes are the types of errors, by their HTTP status.
var messagesErrorTypes = map[int]string{
	401: "authentication_error", 403: "permission_error", 404: "not_found_error", 408: "timeout_error",
	413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}

// messagesErrorType returns the type of an error with an HTTP status.
func messagesErrorType(status int) string {
	other := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		other = "api_error"
	}
	return cmp.Or(messagesErrorTypes[status], other)
}
