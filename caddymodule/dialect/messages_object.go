package dialect

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"strconv"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Constant members of a message's usage that SDKs' types require.
const (
	usageStart = `"cache_creation":null,"server_tool_use":null,"service_tier":"standard"`
	usageEnd   = `"inference_geo":null,"speed":null`
)

// appendMessageHead appends a message up to its first block.
func appendMessageHead(b []byte, id, model string) []byte {
	b = jsonscan.AppendQuoted(append(b, `{"id":`...), id)
	b = jsonscan.AppendQuoted(append(b, `,"type":"message","role":"assistant","model":`...), model)
	return append(b, `,"content":[`...)
}

// appendMessageTail appends the members after a message's content.
func appendMessageTail(b []byte, stop messageStop, u Usage) []byte {
	b = stop.append(append(b, ','))
	b = appendTokens(append(b, `,"usage":{`...), u)
	b = append(append(b, ','), usageStart...)
	b = appendThinkingTokens(append(b, ','), u)
	return append(append(append(b, ','), usageEnd...), "}}"...)
}

// appendTokens appends the token counts of a message's usage, as members. Unlike the
// upstream's, its input tokens exclude cached ones.
func appendTokens(b []byte, u Usage) []byte {
	cached := max(u.CachedTokens, 0)
	b = strconv.AppendInt(append(b, `"input_tokens":`...), max(u.PromptTokens-cached, 0), 10)
	b = strconv.AppendInt(append(b, `,"output_tokens":`...), max(u.CompletionTokens, 0), 10)
	b = append(b, `,"cache_creation_input_tokens":0,"cache_read_input_tokens":`...)
	return strconv.AppendInt(b, cached, 10)
}

// appendThinkingTokens appends output_tokens_details.
func appendThinkingTokens(b []byte, u Usage) []byte {
	b = append(b, `"output_tokens_details":`...)
	if u.ReasoningTokens <= 0 {
		return append(b, "null"...)
	}
	b = strconv.AppendInt(append(b, `{"thinking_tokens":`...), u.ReasoningTokens, 10)
	return append(b, '}')
}

// messageStop is why a message ended.
type messageStop struct {
	reason   string // "" if it has not ended
	sequence string // the stop sequence, or ""
	refusal  string // the refusal's text
}

// stopOf returns why a message ended. calls reports whether it has tool calls, refusal is
// the text of its refusal.
func stopOf(o outcome, calls bool, refused bool, refusal string) messageStop {
	switch {
	case refused || o.finish == finishFilter:
		return messageStop{reason: "refusal", refusal: refusal}
	case o.finish == finishLength:
		return messageStop{reason: "max_tokens"}
	case calls:
		return messageStop{reason: "tool_use"}
	case o.finish == finishStop && o.matched != "":
		return messageStop{reason: "stop_sequence", sequence: o.matched}
	}
	return messageStop{reason: "end_turn"}
}

// append appends the members about why the message ended.
func (s messageStop) append(b []byte) []byte {
	b = jsonscan.AppendQuotedOrNull(append(b, `"stop_reason":`...), s.reason)
	b = jsonscan.AppendQuotedOrNull(append(b, `,"stop_sequence":`...), s.sequence)
	b = append(b, `,"stop_details":`...)
	if s.reason == "refusal" {
		b = append(b, `{"type":"refusal","category":null,"explanation":`...)
		b = append(jsonscan.AppendQuotedOrNull(b, s.refusal), '}')
	} else {
		b = append(b, "null"...)
	}
	return append(b, `,"container":null`...)
}

// appendToolUse appends a tool_use block.
func appendToolUse(b []byte, id, name string, input []byte) []byte {
	b = jsonscan.AppendQuoted(append(b, `{"type":"tool_use","id":`...), id)
	b = jsonscan.AppendQuoted(append(b, `,"name":`...), name)
	b = append(append(b, `,"input":`...), input...)
	return append(b, `,"caller":{"type":"direct"}}`...)
}

// signer signs a thinking block while it is written. Clients discard turns with
// unsigned thinking. The signature only proves that the block is from this gateway. If
// the client omits thinking, the signature contains it, so that it can be restored from
// the history.
type signer struct {
	key     []byte
	store   reasoningStore
	mac     hash.Hash
	carry   bool   // the signature contains the thinking
	carried []byte // thinking for the signature
}

// newSigner returns the signer of a call's thinking.
func newSigner(call *reply) signer {
	return signer{key: call.env.SignatureKey, store: call.env.reasoningStore(), carry: call.omitThinking}
}

// reset starts a block.
func (s *signer) reset() {
	if s.mac == nil {
		s.mac = hmac.New(sha256.New, s.key)
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
		return append(s.store.append(b, carryingMark, s.carried), '"')
	}
	var sum [sha256.Size]byte
	mac := s.mac.Sum(sum[:0])[:signatureSize]
	b = base64.RawURLEncoding.AppendEncode(append(b, signatureMark...), mac)
	return append(b, '"')
}
