package sdk

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/postern-dev/postern/tests/upstream"
)

// A reply is the answer of a scripted model, streamed or whole.
type reply struct {
	thought, text string
	calls         []call
	probs         bool // with the log probabilities of the tokens
}

type call struct{ id, name, arguments string }

// A question has the parts of a request that scripted models read.
type question struct {
	Stream   bool `json:"stream"`
	Messages []struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	} `json:"messages"`
	Format   json.RawMessage `json:"response_format"`
	Logprobs bool            `json:"logprobs"`
	Tools    []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
	body []byte
}

// models returns the scripted models.
func models() map[string]func(question) reply {
	return map[string]func(question) reply{
		"hello":   func(question) reply { return reply{text: "Hello, world."} },
		"echo":    func(q question) reply { return reply{text: string(q.body)} },
		"think":   func(question) reply { return reply{thought: "Six times seven.", text: "Forty-two."} },
		"sure":    func(q question) reply { return reply{text: "Hello, world.", probs: q.Logprobs} },
		"weather": weather,
		"form":    form,
	}
}

// weather calls a tool twice in parallel, and then answers with the results.
func weather(q question) reply {
	var results []string
	for _, m := range q.Messages {
		if m.Role == "tool" {
			results = append(results, fmt.Sprint(m.Content))
		}
	}
	if len(results) > 0 {
		return reply{text: "Results: " + strings.Join(results, ", ")}
	}
	return reply{text: "Let me look.", calls: []call{
		{"call_paris", "get_weather", `{"city": "Paris"}`}, {"call_tokyo", "get_weather", `{"city": "Tokyo"}`},
	}}
}

// form answers with JSON for the request's schema, or calls the tool that takes the form.
func form(q question) reply {
	const filled = `{"city": "Paris", "degrees": 21}`
	if len(q.Tools) > 0 {
		return reply{calls: []call{{"call_form", q.Tools[0].Function.Name, filled}}}
	}
	if !strings.Contains(string(q.Format), `"json_schema"`) {
		return reply{text: "no schema"}
	}
	return reply{text: filled}
}

// serve adds all models of the programs to an upstream.
func serve(up *upstream.Server) {
	for name, say := range models() {
		up.Handle(name, func(x *upstream.Exchange) {
			q := question{body: x.Request.Body}
			if err := json.Unmarshal(x.Request.Body, &q); err != nil {
				upstream.Answer(http.StatusBadRequest, "text/plain", err.Error())(x)
				return
			}
			if r := say(q); q.Stream {
				upstream.Events(r.stream(name)...)(x)
			} else {
				upstream.JSON(r.whole(name))(x)
			}
		})
	}
	up.Handle("full", upstream.Answer(http.StatusBadRequest, "application/json", upstream.LlamaContext))
	up.Handle("loading", upstream.Answer(http.StatusServiceUnavailable, "application/json", upstream.LlamaLoading))
	up.Handle("cut", func(x *upstream.Exchange) {
		x.Stream()
		x.Chunk(upstream.Role("cut"))
		x.Chunk(upstream.Delta("cut", "Half an"))
		x.Die()
	})
}

func (r reply) finish() string {
	if r.calls != nil {
		return "tool_calls"
	}
	return "stop"
}

// stream returns the reply as chunks, in two pieces for each field.
func (r reply) stream(model string) []string {
	chunks := []string{upstream.Role(model)}
	for _, piece := range halves(r.thought) {
		chunks = append(chunks, upstream.Thought(model, piece))
	}
	for _, piece := range halves(r.text) {
		chunk := upstream.Delta(model, piece)
		if r.probs {
			chunk = strings.Replace(chunk, `"index":0`, `"index":0,"logprobs":`+probsOf(piece), 1)
		}
		chunks = append(chunks, chunk)
	}
	for i, c := range r.calls {
		chunks = append(chunks, upstream.ToolDelta(model,
			fmt.Sprintf(`{"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":""}}`, i, c.id, c.name)))
		for _, piece := range halves(c.arguments) {
			chunks = append(chunks, upstream.ToolDelta(model, fmt.Sprintf(`{"index":%d,"function":{"arguments":%q}}`, i, piece)))
		}
	}
	return append(chunks, upstream.Finish(model, r.finish()), upstream.Usage(model, 10, 3), upstream.Done)
}

// probsOf returns the logprobs of a choice with one token.
func probsOf(token string) string {
	return fmt.Sprintf(`{"content":[{"token":%q,"logprob":-0.5,"bytes":[1],"top_logprobs":[{"token":%q,"logprob":-0.5,`+
		`"bytes":[1]}]}]}`, token, token)
}

func halves(s string) []string {
	if s == "" {
		return nil
	}
	middle := len(s) / 2
	return []string{s[:middle], s[middle:]}
}

// whole returns the reply as a chat completion.
func (r reply) whole(model string) string {
	message := map[string]any{"role": "assistant", "content": r.text}
	if r.thought != "" {
		message["reasoning_content"] = r.thought
	}
	var calls []any
	for _, c := range r.calls {
		calls = append(calls, map[string]any{
			"id": c.id, "type": "function",
			"function": map[string]string{"name": c.name, "arguments": c.arguments},
		})
	}
	if calls != nil {
		message["tool_calls"] = calls
	}
	choice := map[string]any{"index": 0, "finish_reason": r.finish(), "message": message}
	if r.probs {
		choice["logprobs"] = json.RawMessage(probsOf(r.text))
	}
	b, err := json.Marshal(map[string]any{
		"id": "chatcmpl-up3", "object": "chat.completion", "created": 1700000000, "model": model,
		"choices": []any{choice},
		"usage":   map[string]int{"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13},
	})
	if err != nil {
		panic(err) // text and numbers always encode
	}
	return string(b)
}
