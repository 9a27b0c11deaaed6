package dialect

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
)

// The upstream's side of the tests: chunks as model servers send them.

const upstreamDone = "data: [DONE]\n\n"

// rawEvent is an event of the upstream.
func rawEvent(data string) string { return "data: " + data + "\n\n" }

// deltaChunk is a chunk whose only choice adds members to the answer.
func deltaChunk(members string) string {
	return rawEvent(`{"id":"u1","object":"chat.completion.chunk","created":1,"model":"up","choices":[{"index":0,` +
		`"delta":{` + members + `},"finish_reason":null}]}`)
}

func contentChunk(s string) string { return deltaChunk(`"content":` + quoted(s)) }

func reasonChunk(s string) string { return deltaChunk(`"reasoning_content":` + quoted(s)) }

// toolChunk is a chunk with entries of tool_calls.
func toolChunk(entries ...string) string {
	return deltaChunk(`"tool_calls":[` + strings.Join(entries, ",") + `]`)
}

// call is an entry of tool_calls that begins a call.
func call(index int, id, name, args string) string {
	return fmt.Sprintf(`{"index":%d,"id":%s,"type":"function","function":{"name":%s,"arguments":%s}}`, index, quoted(id),
		quoted(name), quoted(args))
}

// more is an entry of tool_calls that continues a call.
func more(index int, args string) string {
	return fmt.Sprintf(`{"index":%d,"function":{"arguments":%s}}`, index, quoted(args))
}

// finishChunk ends the answer; extra are further members of the choice.
func finishChunk(reason string, extra ...string) string {
	return rawEvent(`{"id":"u1","model":"up","choices":[{"index":0,"delta":{},"finish_reason":` + quoted(reason) +
		strings.Join(extra, "") + `}]}`)
}

func usageChunk(prompt, cached, completion int) string {
	return rawEvent(fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,`+
		`"prompt_tokens_details":{"cached_tokens":%d}}}`, prompt, completion, cached))
}

func quoted(s string) string { return string(jsonscan.AppendQuoted(nil, s)) }

// The client's side of the tests.

// testCall returns what an encoder needs of a request. Its ids are numbered: prefix, then 1, 2, …
func testCall(change ...func(*reply)) *reply {
	n := 0
	r := &reply{model: "public", env: &Env{
		Estimate:     func(*tokens.Prompt) int { return 42 },
		SignatureKey: []byte("a key for tests"), Sealer: testSealer, RequestID: "req_1",
		Now:   func() time.Time { return time.Unix(1700000000, 0) },
		NewID: func(prefix string) string { n++; return prefix + strconv.Itoa(n) },
	}}
	for _, f := range change {
		f(r)
	}
	return r
}

// newTestStream returns a stream in a dialect.
func newTestStream(d Dialect, r *reply) *answerStream {
	r.dialect = d
	return newAnswerStream(r, false)
}

// translate feeds an upstream's stream to a stream, in pieces whose sizes cut returns. If cut is nil, it
// is fed in one piece. The upstream's stream ends without an error.
func translate(s Stream, upstream string, cut func() int) string {
	var out strings.Builder
	for len(upstream) > 0 && !s.Done() {
		n := len(upstream)
		if cut != nil {
			n = min(max(cut(), 1), n)
		}
		out.Write(s.Feed([]byte(upstream[:n])))
		upstream = upstream[n:]
	}
	out.Write(s.End(nil))
	return out.String()
}

// clientEvent is an event as a client reads it.
type clientEvent struct {
	name string
	data string
	json map[string]any
}

// clientEvents reads a client's stream. Each event has exactly one event line and
// one data line, whose type is the event's name.
func clientEvents(stream string) ([]clientEvent, error) {
	var list []clientEvent
	for stream != "" {
		block, rest, ok := strings.Cut(stream, "\n\n")
		if !ok {
			return nil, fmt.Errorf("the stream ends within an event: %q", stream)
		}
		stream = rest
		if block == "data: [DONE]" {
			list = append(list, clientEvent{name: "[DONE]"})
			continue
		}
		first, second, _ := strings.Cut(block, "\n")
		name, ok1 := strings.CutPrefix(first, "event: ")
		data, ok2 := strings.CutPrefix(second, "data: ")
		if !ok1 || !ok2 || strings.ContainsAny(data, "\r\n") {
			return nil, fmt.Errorf("not one event line and one data line: %q", block)
		}
		e := clientEvent{name: name, data: data}
		if err := json.Unmarshal([]byte(data), &e.json); err != nil {
			return nil, fmt.Errorf("%q: %w", block, err)
		}
		if e.json["type"] != name {
			return nil, fmt.Errorf("event %s has type %v", name, e.json["type"])
		}
		list = append(list, e)
	}
	return list, nil
}

// dig follows keys and indexes into decoded JSON. It returns nil if a value is missing.
func dig(v any, path ...any) any {
	for _, key := range path {
		switch key := key.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[key]
		case int:
			list, _ := v.([]any)
			if key >= len(list) {
				return nil
			}
			v = list[key]
		}
	}
	return v
}

// str is dig for a string.
func str(v any, path ...any) string {
	s, _ := dig(v, path...).(string)
	return s
}

// messagesDigest summarizes a messages stream:
//
//	thinking:… text:… tool:id name {args} … | stop_reason
//
// with " !type: message" at the end for an error.
func messagesDigest(t *testing.T, stream string) string {
	t.Helper()
	events, err := clientEvents(stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkMessagesStream(events); err != nil {
		t.Fatalf("%v in\n%s", err, stream)
	}
	var b strings.Builder
	for _, e := range events {
		switch e.name {
		case "content_block_start":
			if b.Len() > 0 {
				b.WriteString(" ")
			}
			block := dig(e.json, "content_block")
			if str(block, "type") == "tool_use" {
				fmt.Fprintf(&b, "tool:%s %s ", str(block, "id"), str(block, "name"))
			} else {
				b.WriteString(str(block, "type") + ":")
			}
		case "content_block_delta":
			d := dig(e.json, "delta")
			b.WriteString(str(d, "text") + str(d, "thinking") + str(d, "partial_json"))
		case "message_delta":
			b.WriteString(" | " + str(e.json, "delta", "stop_reason"))
			if s := str(e.json, "delta", "stop_sequence"); s != "" {
				b.WriteString(" " + s)
			}
		case "error":
			fmt.Fprintf(&b, " !%s: %s", str(e.json, "error", "type"), str(e.json, "error", "message"))
		}
	}
	return strings.TrimSpace(b.String())
}

// wholeMessageDigest is messagesDigest for a whole message.
func wholeMessageDigest(t *testing.T, body []byte) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if err := checkMessage(m); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	var list []string
	content, _ := m["content"].([]any)
	for _, block := range content {
		switch kind := str(block, "type"); kind {
		case "tool_use":
			input, _ := json.Marshal(dig(block, "input"))
			list = append(list, fmt.Sprintf("tool:%s %s %s", str(block, "id"), str(block, "name"), input))
		default:
			list = append(list, kind+":"+str(block, kind))
		}
	}
	end := "| " + str(m, "stop_reason")
	if s := str(m, "stop_sequence"); s != "" {
		end += " " + s
	}
	return strings.Join(append(list, end), " ")
}

// responsesDigest summarizes a responses stream:
//
//	reasoning:… message:… refusal:… function_call:id name {args} … | status
//
// with (incomplete) after incomplete items, and " !code: message" for an error.
func responsesDigest(t *testing.T, stream string) string {
	t.Helper()
	events, err := clientEvents(stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkResponsesStream(events); err != nil {
		t.Fatalf("%v in\n%s", err, stream)
	}
	last := events[len(events)-2]
	digest := responseDigest(dig(last.json, "response"))
	if str(last.json, "response", "status") == "failed" {
		digest += fmt.Sprintf(" !%s: %s", str(last.json, "response", "error", "code"),
			str(last.json, "response", "error", "message"))
	}
	return digest
}

// responseDigest is responsesDigest for a response object.
func responseDigest(response any) string {
	var list []string
	output, _ := dig(response, "output").([]any)
	for _, item := range output {
		var s string
		switch kind := str(item, "type"); kind {
		case "reasoning":
			s = "reasoning:" + str(item, "summary", 0, "text")
		case "message":
			s = "message:" + str(item, "content", 0, "text")
			if str(item, "content", 0, "type") == "refusal" {
				s = "refusal:" + str(item, "content", 0, "refusal")
			}
		default:
			name := str(item, "name")
			if ns := str(item, "namespace"); ns != "" {
				name = ns + "/" + name
			}
			s = strings.TrimSpace(kind+":"+str(item, "call_id")+" "+name) + " " + str(item, "arguments") + str(item, "input")
			for _, key := range []string{"action", "operation"} {
				if v := dig(item, key); v != nil {
					text, _ := json.Marshal(v)
					s += string(text)
				}
			}
		}
		if str(item, "status") != "completed" {
			s += " (" + str(item, "status") + ")"
		}
		list = append(list, s)
	}
	end := "| " + str(response, "status")
	if reason := str(response, "incomplete_details", "reason"); reason != "" {
		end += " " + reason
	}
	return strings.Join(append(list, end), " ")
}
