package dialect

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// codexWait is the pattern by which Codex reads the time to wait from a failed response.
var codexWait = regexp.MustCompile(`(?i)try again in\s*(\d+(?:\.\d+)?)\s*(s|ms|seconds?)`)

// Errors that clients retry after some time are compared with the golden file in each dialect. The time
// to wait is in the header and in the message.
func TestWaits(t *testing.T) {
	var b strings.Builder
	for _, c := range []struct {
		name     string
		e        *Error
		inStream bool
	}{
		{"queue full", QueueFull("m"), true},
		{"queue timeout", QueueTimeout("m"), true},
		{"offline", Offline("m"), true},
		{"the model server's own limit", FromUpstream(429, nil, []byte(`{"error":{"message":"Too many requests."}}`)), true},
		{
			"the model server's own words",
			FromUpstream(429, nil, []byte(`{"error":{"message":"Slow down. Please try again in 7.5s."}}`)), true,
		},
		{"overloaded", Overloaded("The gateway is shutting down."), false},
		{"the model server is loading", FromUpstream(503, nil, []byte(`{"error":{"message":"Loading model"}}`)), false},
	} {
		if c.e.RetryAfter == 0 {
			t.Errorf("%s: no Retry-After", c.name)
		}
		for _, d := range []Dialect{Chat, Messages, Responses} {
			fmt.Fprintf(&b, "%s, %s: HTTP %d, Retry-After %s\n%s\n", c.name, d, c.e.HTTPStatus(d),
				c.e.Header().Get("Retry-After"), c.e.Body(d, "req_1"))
			if c.e.InStream(d) != (c.inStream && d == Responses) {
				t.Errorf("%s, %s: in the stream %v", c.name, d, c.e.InStream(d))
			}
			call := decodeCase(t, d, map[Dialect]string{
				Chat:      `{"model":"public","stream":true,"messages":[]}`,
				Messages:  `{"model":"public","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"x"}]}`,
				Responses: `{"model":"public","stream":true,"input":"x"}`,
			}[d])
			stream := string(call.NewStream().End(c.e))
			fmt.Fprintf(&b, "%s, %s, streamed:\n%s\n", c.name, d, stream)
			if !codexWait.MatchString(stream) || strings.Count(strings.ToLower(c.e.rendered(d).Message), "try again") != 1 {
				t.Errorf("%s, %s: no time to wait: %s", c.name, d, stream)
			}
			if d == Responses && strings.Contains(stream, `"error":{"code":"rate_limit_exceeded"`) != c.inStream {
				t.Errorf("%s: the code of the failed response: %s", c.name, stream)
			}
		}
	}
	golden(t, "waits", b.String())
}
