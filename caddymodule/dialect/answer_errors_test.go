package dialect

import (
	"strings"
	"testing"
)

// TestErrorsInStreams checks every kind of error after the header was sent. The
// stream begins, is kept alive, and ends with the error in the dialect's form.
func TestErrorsInStreams(t *testing.T) {
	long := FromUpstream(400, nil,
		[]byte(`{"error":{"code":400,"message":"request (13392 tokens) exceeds the available context size (8192 tokens), `+
			`try increasing it","type":"exceed_context_size_error","n_prompt_tokens":13392,"n_ctx":8192}}`))
	for _, c := range []struct {
		name               string
		err                *Error
		messagesType, code string
		text, responses    string
	}{
		{
			"context of llama.cpp", long, "invalid_request_error", "context_length_exceeded",
			"prompt is too long: 13392 tokens > 8192 maximum", "request (13392 tokens)",
		},
		{
			"context of vLLM", FromUpstream(400, nil,
				[]byte(`{"object":"error","message":"This model's maximum context length is 4096 tokens. However, your messages `+
					`resulted in 5000 tokens","code":400}`)),
			"invalid_request_error", "context_length_exceeded", "prompt is too long: 5000 tokens > 4096 maximum",
			"This model's maximum",
		},
		{"offline", Offline("public"), "overloaded_error", "rate_limit_exceeded", "is offline", "Please try again in 5s."},
		{
			"overloaded", FromUpstream(503, nil, []byte(`{"error":{"message":"Loading model"}}`)), "overloaded_error",
			"server_error", "Loading model", "Please try again in 5s.",
		},
		{
			"rate limit", FromUpstream(429, nil, []byte(`slow down`)), "rate_limit_error", "rate_limit_exceeded", "slow down",
			"Please try again in 1s.",
		},
		{"unreachable", UpstreamUnreachable("public"), "api_error", "server_error", "cannot connect", "cannot connect"},
		{"reset", UpstreamReset("public"), "api_error", "server_error", "was lost before", "was lost before"},
		{
			"timeout", &Error{Kind: KindTimeout, Message: "The model server did not answer in time."}, "timeout_error",
			"server_error", "in time", "in time",
		},
		{"credentials", FromUpstream(401, nil, []byte(`bad key`)), "api_error", "server_error", "not yours", "not yours"},
		{
			"bad request", FromUpstream(400, nil, []byte(`{"error":{"message":"no such grammar","code":"bad_grammar"}}`)),
			"invalid_request_error", "bad_grammar", "no such grammar", "no such grammar",
		},
		{
			"bad request of Kokoro",
			FromUpstream(400, nil, []byte(`{"detail":{"error":"validation_error","message":"no voice"}}`)),
			"invalid_request_error", "invalid_prompt", "no voice", "no voice",
		},
		{
			"bad request without a code", FromUpstream(422, nil, []byte(`{"detail":"no"}`)), "invalid_request_error",
			"invalid_prompt", "no", "no",
		},
		{"revoked", EndedKey("revoked"), "authentication_error", "invalid_api_key", "revoked", "revoked"},
		{"broken", StreamBroken(), "api_error", "server_error", "closed the stream", "closed the stream"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, upstream := range []string{
				"", contentChunk("Hi"), toolChunk(call(0, "c1", "a", `{"x"`)),
				contentChunk("Hi") + toolChunk(call(0, "c1", "a", `{}`)),
			} {
				out := endWith(newTestStream(Messages, testCall()), upstream, c.err)
				digest := messagesDigest(t, out)
				if !strings.Contains(digest, "!"+c.messagesType+": ") || !strings.Contains(digest, c.text) ||
					!strings.Contains(out, `"request_id":"req_1"`) {
					t.Errorf("messages: %s", digest)
				}
				if strings.Contains(out, "message_delta\"") {
					t.Errorf("messages: a good end and a bad one:\n%s", out)
				}
				digest = responsesDigest(t, endWith(newTestStream(Responses, testCall()), upstream, c.err))
				if !strings.Contains(digest, "| failed !"+c.code+": ") || !strings.Contains(digest, c.responses) {
					t.Errorf("responses: %s", digest)
				}
				if strings.Contains(digest, "function_call") {
					t.Errorf("responses: an item that was not done: %s", digest)
				}
			}
		})
	}
}

// endWith returns a stream that was kept alive until its upstream failed.
func endWith(s *answerStream, upstream string, cause *Error) string {
	var out strings.Builder
	for range 3 {
		out.Write(s.Ping())
	}
	if upstream != "" {
		out.Write(s.Feed([]byte(upstream)))
		out.Write(s.Ping())
	}
	out.Write(s.End(cause))
	out.Write(s.Ping())
	return out.String()
}

// TestCauseAfterTheEnd checks that a failure after the finish_reason does not spoil a complete answer.
func TestCauseAfterTheEnd(t *testing.T) {
	for _, d := range []Dialect{Messages, Responses} {
		s := newTestStream(d, testCall())
		if s.Finished() {
			t.Errorf("%s: finished at once", d)
		}
		out := endWith(s, contentChunk("Hi")+finishChunk("stop"), StreamBroken())
		if err := checkStream(d, out); err != nil || s.Err() != nil || !s.Finished() || !s.Done() {
			t.Errorf("%s: %v, %v\n%s", d, err, s.Err(), out)
		}
	}
}

// TestFeedBeforePing checks that a stream opens once, also if its first event comes before a ping.
func TestFeedBeforePing(t *testing.T) {
	for _, d := range []Dialect{Messages, Responses} {
		s := newTestStream(d, testCall())
		var out strings.Builder
		out.Write(s.Feed([]byte(contentChunk("Hi") + finishChunk("stop"))))
		out.Write(s.Ping())
		out.Write(s.End(nil))
		if err := checkStream(d, out.String()); err != nil {
			t.Errorf("%s: %v\n%s", d, err, out.String())
		}
	}
}

// TestEventTooLarge checks that an event without an end does not fill the memory.
func TestEventTooLarge(t *testing.T) {
	s := newTestStream(Messages, testCall())
	s.Ping()
	piece := []byte("data: " + strings.Repeat("x", 1<<20))
	for range 40 {
		s.Feed(piece)
		piece = piece[6:]
		piece = append([]byte("xxxxxx"), piece...)
	}
	if s.Err() == nil || !strings.Contains(s.Err().Message, "larger than 32 MiB") {
		t.Errorf("%v", s.Err())
	}
}
