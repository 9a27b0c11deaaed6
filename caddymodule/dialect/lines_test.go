package dialect

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// eventLine is the form of each line of a stream. Clients read data of several lines as one event for
// each line, or not at all.
var eventLine = regexp.MustCompile(`^(data|event): |^$`)

// The data of each event is one line, for any request of a client and any event of the model server.
func TestEventsAreOneLine(t *testing.T) {
	const tools = `[{"type":"function","name":"f","description":"d","strict":true,"parameters":{"type":"object",` +
		`"properties":{"a b":{"type":"string","description":"x y"}}}},` +
		`{"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark","definition":"start: a"}},` +
		`{"type":"web_search","filters":{"a":[1,2]}},` +
		`{"type":"namespace","name":"n","tools":[{"type":"function","name":"g","parameters":{"type":"object"}}]}]`
	bodies := map[Dialect][]string{
		Responses: {
			`{"model":"public","stream":true,"input":"x","instructions":"be\nbrief","max_output_tokens":9,"max_tool_calls":3,` +
				`"parallel_tool_calls":true,` +
				`"prompt_cache_key":"k","reasoning":{"effort":"low","summary":null,"more":{"a":[1,2]}},"safety_identifier":"s",` +
				`"store":false,"temperature":0.5,` +
				`"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object","properties":{}}},` +
				`"verbosity":"low"},` +
				`"tool_choice":{"type":"function","name":"f"},"tools":` + tools +
				`,"top_logprobs":2,"top_p":0.5,"presence_penalty":0.1,"frequency_penalty":0.1,` +
				`"truncation":"auto","metadata":{"a":"b","c":"d"}}`,
			`{"model":"public","stream":true,"input":"x","text":{"verbosity":"low"},"reasoning":{},"tools":` + tools +
				`,"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}}`,
		},
		Messages: {`{"model":"public","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"x"}],` +
			`"metadata":{"user_id":"u"}}`},
		Chat: {`{"model":"public","stream":true,"messages":[{"role":"user","content":"x"}],"metadata":{"a":"b"}}`},
	}
	answers := []string{
		contentChunk("a\nb\r\nc") + finishChunk("stop") + upstreamDone,
		toolChunk(`{"index":0,"id":"1","function":{"name":"f","arguments":"{\n\"a\":\r\n1}"}}`) +
			toolChunk(`{"index":1,"id":"2","function":{"name":"c","arguments":"{\"input\":\n\"x\\ny\"}"}}`) +
			finishChunk("tool_calls") + upstreamDone,
		"data: {\"choices\":[{\"index\":0,\ndata: \"delta\":{\"content\":\"x\"},\ndata: " +
			"\"logprobs\":{\"content\":[{\"token\":\"x\",\"logprob\":-1,\"bytes\":[1,\ndata: 2]}]}}]}\n\n" +
			finishChunk("stop") + upstreamDone,
		contentChunk("half"),
	}
	for d, list := range bodies {
		for _, compact := range list {
			for _, breaks := range []string{"\n", "\r\n", "\r"} {
				var body strings.Builder
				indented := json.NewEncoder(&body)
				indented.SetIndent("", "  ")
				if err := indented.Encode(json.RawMessage(compact)); err != nil {
					t.Fatal(err)
				}
				for _, answer := range answers {
					call := decodeCase(t, d, strings.ReplaceAll(body.String(), "\n", breaks))
					s := call.NewStream()
					out := string(s.Feed([]byte(answer)))
					out += string(s.End(nil))
					for line := range strings.SplitSeq(strings.TrimSuffix(out, "\n"), "\n") {
						if !eventLine.MatchString(line) || strings.Contains(line, "\r") {
							t.Fatalf("%s, breaks %q: line %q of\n%s", d, breaks, line, out)
						}
						if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]" && !json.Valid([]byte(data)) {
							t.Fatalf("%s, breaks %q: no JSON: %s", d, breaks, data)
						}
					}
				}
			}
		}
	}
}

// A byte order mark in front of a body is skipped, in each dialect.
func TestByteOrderMark(t *testing.T) {
	for d, body := range map[Dialect]string{
		Chat:      `{"model":"public","messages":[{"role":"user","content":"x"}]}`,
		Messages:  `{"model":"public","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`,
		Responses: `{"model":"public","input":"x"}`,
	} {
		if up := bodyOf(t, decodeCase(t, d, "\ufeff"+body).Body("up")); !json.Valid([]byte(up)) {
			t.Errorf("%s: what goes up is not JSON: %q", d, up)
		}
	}
}
