package tests

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/llama"
)

// A speaker writes requests of one dialect: it asks for the next turn of a conversation.
type speaker struct {
	name string
	ask  func(t *testing.T, c *harness.Client, history []any, more string) turn
	// goesOn returns the items after a turn: the turn itself, and the results of its calls.
	goesOn func(m turn, result string) []any
	tool   string // a member of the request
	limit  string // the member that limits tokens
}

func userMessage(content string) any { return map[string]any{"role": "user", "content": content} }

// weatherSchema are the parameters of get_weather.
const weatherSchema = `{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`

func speakers() []speaker {
	return []speaker{
		{
			name: "chat", ask: askChat, limit: "max_tokens",
			tool: `,"tools":[{"type":"function","function":{"name":"get_weather","parameters":` + weatherSchema + `}}]`,
			goesOn: func(m turn, result string) []any {
				more := []any{m.Raw}
				for _, call := range m.Calls {
					more = append(more, map[string]any{"role": "tool", "tool_call_id": call.ID, "content": result})
				}
				return more
			},
		},
		{
			name: "messages", limit: "max_tokens",
			ask: func(t *testing.T, c *harness.Client, history []any, more string) turn {
				return askMessages(t, c, fmt.Sprintf(`{"model":"org/tiny:1","max_tokens":300,"messages":%s%s}`,
					toJSON(t, history), more))
			},
			tool: `,"tools":[{"name":"get_weather","input_schema":` + weatherSchema + `}]`,
			goesOn: func(m turn, result string) []any {
				var results []any
				for _, call := range m.Calls {
					results = append(results, map[string]any{"type": "tool_result", "tool_use_id": call.ID, "content": result})
				}
				return []any{
					map[string]any{"role": "assistant", "content": m.Raw},
					map[string]any{"role": "user", "content": results},
				}
			},
		},
		{
			name: "responses", limit: "max_output_tokens",
			ask: func(t *testing.T, c *harness.Client, history []any, more string) turn {
				m, _ := askResponses(t, c,
					fmt.Sprintf(`{"model":"org/tiny:1","store":false,"input":%s%s}`, toJSON(t, history), more))
				return m
			},
			tool: `,"tools":[{"type":"function","name":"get_weather","parameters":` + weatherSchema + `}]`,
			goesOn: func(m turn, result string) []any {
				more, _ := m.Raw.([]any)
				for _, call := range m.Calls {
					more = append(more, map[string]any{"type": "function_call_output", "call_id": call.ID, "output": result})
				}
				return more
			},
		},
	}
}

// askChat asks in the chat dialect, whole or streamed.
func askChat(t *testing.T, c *harness.Client, history []any, more string) (m turn) {
	t.Helper()
	request := fmt.Sprintf(`{"model":"org/tiny:1","messages":%s%s}`, toJSON(t, history), more)
	a := c.Post(t, request)
	if a.Status != 200 || a.Err != nil {
		t.Fatalf("status %d, %v, %s", a.Status, a.Err, a.Body)
	}
	chunks := []any{}
	if strings.Contains(request, `"stream":true`) {
		for line := range strings.SplitSeq(strings.TrimSuffix(a.Body, "\n\ndata: [DONE]\n\n"), "\n\n") {
			chunks = append(chunks, fromJSON(t, strings.TrimPrefix(line, "data: ")))
		}
	} else {
		chunks = append(chunks, fromJSON(t, a.Body))
	}
	for _, chunk := range chunks {
		m.addChat(chunk)
		if text(chunk, "model") != "org/tiny:1" || (at(chunk, "usage") == nil) != strings.Contains(request, `"stream":true`) {
			t.Errorf("the name of the model or the usage is wrong in %v", chunk)
		}
	}
	var calls []any
	for i := range m.Calls {
		call := &m.Calls[i]
		calls = append(calls, map[string]any{
			"id": call.ID, "type": "function",
			"function": map[string]any{"name": call.Name, "arguments": call.Arguments},
		})
		call.Arguments = toJSON(t, fromJSON(t, call.Arguments))
	}
	raw := map[string]any{"role": "assistant", "content": m.Text}
	if calls != nil {
		raw["tool_calls"] = calls
	}
	m.Raw = raw
	return m
}

// addChat adds a chat answer, or a chunk of one.
func (m *turn) addChat(chunk any) {
	if stop := text(chunk, "choices", 0, "finish_reason"); stop != "" {
		m.Stop = stop
	}
	for _, part := range []string{"message", "delta"} {
		said := at(chunk, "choices", 0, part)
		m.Text += text(said, "content")
		m.Thinking += text(said, "reasoning_content")
		calls, _ := at(said, "tool_calls").([]any)
		for i, call := range calls {
			k := max(number(call, "index"), i)
			for len(m.Calls) <= k {
				m.Calls = append(m.Calls, toolCall{})
			}
			m.Calls[k].ID += text(call, "id")
			m.Calls[k].Name += text(call, "function", "name")
			m.Calls[k].Arguments += text(call, "function", "arguments")
		}
	}
}

// stops are why a turn ended, by dialect.
var stops = map[string]map[string]string{
	"done":  {"chat": "stop", "messages": "end_turn", "responses": "completed"},
	"calls": {"chat": "tool_calls", "messages": "tool_use", "responses": "completed"},
}

// An agent asks, the model calls tools, the agent gives their results, and the
// model answers: in each dialect, whole and streamed, with thinking and with
// several calls at once.
func testAgentLoop(t *testing.T, c *harness.Client) {
	paris, tokyo := `{"city":"Paris"}`, `{"city":"Tokyo"}`
	for _, s := range speakers() {
		for _, tc := range []struct {
			prompt, text, thinking string
			calls                  []string
		}{
			{"weather?", "", "", []string{paris}},
			{"[[saycall]]", "Let me look that up first.", "", []string{paris}},
			{"[[parallel]]", "", "", []string{paris, tokyo}},
			{"[[thinkcall]]", "", "A tool would help here, therefore I will use it.", []string{paris}},
		} {
			for _, stream := range []string{"", `,"stream":true`} {
				t.Run(s.name+" "+tc.prompt+stream, func(t *testing.T) {
					more := s.tool + stream + `,"temperature":0`
					history := []any{userMessage(tc.prompt)}
					m := s.ask(t, c, history, more)
					var calls []string
					for _, call := range m.Calls {
						if call.Name != "get_weather" || call.ID == "" {
							t.Errorf("call %+v", call)
						}
						calls = append(calls, call.Arguments)
					}
					if strings.TrimSpace(m.Text) != tc.text || strings.TrimSpace(m.Thinking) != tc.thinking ||
						fmt.Sprint(calls) != fmt.Sprint(tc.calls) || m.Stop != stops["calls"][s.name] {
						t.Fatalf("the first turn is %+v", m)
					}
					m = s.ask(t, c, append(history, s.goesOn(m, "22 degrees")...), more)
					if m.Text != llama.Done || len(m.Calls) != 0 || m.Stop != stops["done"][s.name] {
						t.Errorf("the second turn is %+v", m)
					}
				})
			}
		}
	}
}

// Thinking is separate from the answer.
func testThinking(t *testing.T, c *harness.Client) {
	for _, s := range speakers() {
		for _, stream := range []string{"", `,"stream":true`} {
			m := s.ask(t, c, []any{userMessage("[[think]]")}, stream+`,"temperature":0`)
			if m.Text != "After some thought: forty-two." || m.Stop != stops["done"][s.name] ||
				strings.TrimSpace(m.Thinking) != "The user wants something. I should ponder briefly before speaking, then give a "+
					"conclusion." {
				t.Errorf("%s%s: %+v", s.name, stream, m)
			}
			// The next request returns it with the history.
			m = s.ask(t, c, append([]any{userMessage("[[think]]")}, append(s.goesOn(m, "")[:1], userMessage("hello"))...),
				stream+`,"temperature":0`)
			if m.Text != llama.Answer {
				t.Errorf("%s%s: the next turn is %+v", s.name, stream, m)
			}
		}
	}
}

// A call that ends in its middle, by the model or by the limit of tokens, never looks like a complete call.
func testBrokenCalls(t *testing.T, c *harness.Client) {
	for _, s := range speakers()[1:] {
		for _, prompt := range []string{"[[badcall]]", "weather?"} {
			for _, stream := range []string{"", `,"stream":true`} {
				t.Run(s.name+" "+prompt+stream, func(t *testing.T) {
					path, body := messagesPath, `{"model":"org/tiny:1","temperature":0,"messages":[{"role":"user","content":`+
						harness.Quote(prompt)+`}]`
					if s.name == "responses" {
						path, body = responsesPath, `{"model":"org/tiny:1","temperature":0,"store":false,"input":`+harness.Quote(prompt)
					}
					limit := 200
					if prompt == "weather?" {
						limit = 6 // before the city's name
					}
					body += fmt.Sprintf(`,"%s":%d%s%s}`, s.limit, limit, s.tool, stream)
					a := c.Do(t, http.MethodPost, path, body)
					if a.Err != nil || a.Status >= 500 && a.Status != 502 {
						t.Errorf("status %d, %v", a.Status, a.Err)
					}
					if stopped := map[string]string{"messages": `"max_tokens"`, "responses": `"incomplete"`}[s.name]; limit == 6 &&
						!strings.Contains(a.Body, stopped) {
						t.Errorf("the limit is not told: %s", a.Body)
					}
					if strings.Contains(a.Body, "Paris") {
						t.Errorf("half a call was completed: %s", a.Body)
					}
				})
			}
		}
	}
}

// The model server is killed while it answers in each dialect: each stream ends with
// an error.
func TestLlamaKilled(t *testing.T) {
	t.Parallel()
	_, c, server := llamaRig(t, llama.Options{Slots: 3, Context: 16384})
	const long = `"stream":true,"messages":[{"role":"user","content":"[[long]]"}]}`
	requests := map[string]string{
		"/v1/chat/completions": `{"model":"org/tiny:1",` + long,
		messagesPath:           `{"model":"org/tiny:1","max_tokens":16000,` + long,
		responsesPath:          `{"model":"org/tiny:1","stream":true,"input":"[[long]]"}`,
	}
	streams := map[string]*harness.Stream{}
	for path, body := range requests {
		streams[path] = c.Open(t, path, body)
	}
	for path, s := range streams {
		for range 8 {
			if text, err := s.Next(); err != nil {
				t.Fatalf("%s: %q, %v", path, text, err)
			}
		}
	}
	server.Kill()
	for path, s := range streams {
		rest, err := s.Rest()
		if err != nil {
			t.Errorf("%s: the stream ended with %v", path, err)
		}
		if path == "/v1/chat/completions" {
			events := strings.SplitAfter(strings.TrimSuffix(rest, "\n\n"), "\n\n")
			expectStreamError(t, events[len(events)-1]+"\n\n")
		} else if names := names(readEvents(t, rest)); !slices.Contains(names,
			map[string]string{messagesPath: "error", responsesPath: "response.failed"}[path]) {
			t.Errorf("%s: the stream ended with %v", path, names)
		}
		a := c.Do(t, http.MethodPost, path, strings.Replace(requests[path], `"stream":true`, `"stream":false`, 1))
		if a.Status != 502 {
			t.Errorf("%s: the next request: status %d, %s", path, a.Status, a.Body)
		}
	}
}

// The error for a prompt that is too long has the words that clients look for.
func testContextOverflow(t *testing.T, c *harness.Client) {
	long := harness.Quote(strings.Repeat("The quick brown fox jumps over the lazy dog. ", 800))
	for _, stream := range []string{"", `,"stream":true`} {
		a := c.Do(t, http.MethodPost, messagesPath,
			`{"model":"org/tiny:1","max_tokens":10,"messages":[{"role":"user","content":`+long+`}]`+stream+`}`)
		var tokens, limit int
		says := messagesError(t, a, 400, "invalid_request_error")
		if n, _ := fmt.Sscanf(says, "prompt is too long: %d tokens > %d maximum", &tokens, &limit); n != 2 ||
			limit != 4096 || tokens <= limit {
			t.Errorf("the message is %q", says)
		}
		e := c.Do(t, http.MethodPost, responsesPath, `{"model":"org/tiny:1","input":`+long+stream+`}`).
			ExpectError(t, 400, "invalid_request_error", "context_length_exceeded")
		if e.Param == nil || *e.Param != "input" {
			t.Errorf("param %v", e.Param)
		}
	}
}
