package scripted

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/wait"
)

type chatRequest struct {
	Messages []struct {
		Role    string `json:"role"`
		Content texts  `json:"content"`
	} `json:"messages"`
	Stream        bool `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           int        `json:"max_tokens"` // 0: no limit
	MaxCompletionTokens int        `json:"max_completion_tokens"`
	N                   int        `json:"n"`
	Stop                texts      `json:"stop"`
	Tools               []tool     `json:"tools"`
	ToolChoice          toolChoice `json:"tool_choice"`
}

func (q *chatRequest) check() error {
	switch {
	case q.N > 1:
		return invalid("n", "This model returns a single answer: n must be 1.")
	case q.MaxTokens < 0:
		return invalid("max_tokens", "max_tokens must be at least 1.")
	case len(q.Messages) == 0:
		return invalid("messages", "messages must have at least one message.")
	}
	return nil
}

// object is a JSON object.
type object map[string]any

// script is an answer before it is encoded.
type script struct {
	begin  object   // delta of a stream's first chunk
	pieces []object // deltas of the next chunks, one a token
	whole  object   // message of a whole answer
	finish string
	prompt int // tokens
}

// newID returns an id in the format of the OpenAI API.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

// write sends the answer, as a stream if the client requested one.
func (m *model) write(w http.ResponseWriter, r *http.Request, q *chatRequest, a *script) error {
	answer := object{"id": newID("chatcmpl-"), "object": "chat.completion", "created": time.Now().Unix(), "model": ModelID}
	usage := object{
		"prompt_tokens": a.prompt, "completion_tokens": len(a.pieces),
		"total_tokens": a.prompt + len(a.pieces),
	}
	if q.Stream {
		answer["object"] = "chat.completion.chunk"
		return m.stream(w, r, answer, a, usage, q.StreamOptions.IncludeUsage)
	}
	for range a.pieces {
		if err := m.think(r); err != nil {
			return err
		}
	}
	answer["choices"], answer["usage"] = []any{object{"index": 0, "message": a.whole, "finish_reason": a.finish}}, usage
	return writeJSON(w, answer)
}

// stream sends the answer token by token. Each token is flushed.
func (m *model) stream(
	w http.ResponseWriter, r *http.Request, chunk object, a *script, usage object, withUsage bool,
) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	flush := http.NewResponseController(w).Flush
	send := func(choices ...any) error {
		chunk["choices"] = choices
		data, err := json.Marshal(chunk)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil {
			return err
		}
		return flush()
	}
	choice := func(delta object, finish any) object {
		return object{"index": 0, "delta": delta, "finish_reason": finish}
	}
	if err := send(choice(a.begin, nil)); err != nil {
		return err
	}
	for _, piece := range a.pieces {
		if err := m.think(r); err != nil {
			return err
		}
		if err := send(choice(piece, nil)); err != nil {
			return err
		}
	}
	if err := send(choice(object{}, a.finish)); err != nil {
		return err
	}
	if withUsage {
		chunk["usage"] = usage
		if err := send([]any{}...); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(w, "data: [DONE]\n\n")
	return err
}

// think waits for the duration of one token. It returns an error if the client
// disconnects.
func (m *model) think(r *http.Request) error {
	return wait.For(r.Context(), m.delay)
}

// chat serves POST /v1/chat/completions.
func (m *model) chat(w http.ResponseWriter, r *http.Request) error {
	var q chatRequest
	if err := decode(w, r, &q); err != nil {
		return err
	}
	if q.MaxCompletionTokens != 0 {
		q.MaxTokens = q.MaxCompletionTokens
	}
	if err := q.check(); err != nil {
		return err
	}
	last := q.Messages[len(q.Messages)-1]
	text := agentText.ReplaceAllString(strings.Join(last.Content, "\n"), "")
	a := new(script)
	if t := pick(q.Tools, q.ToolChoice, last.Role, text); t != nil {
		arguments, err := json.Marshal(example(t.Function.Parameters))
		if err != nil {
			return fmt.Errorf("encoding arguments: %w", err)
		}
		a.call(t.Function.Name, string(arguments))
	} else {
		a.text(truncate(reply(last.Role, text), q.Stop, q.MaxTokens))
	}
	for _, message := range q.Messages {
		a.prompt += len(tokens(strings.Join(message.Content, "\n")))
	}
	return m.write(w, r, &q, a)
}

// text sets the answer of a chat to text.
func (a *script) text(pieces []string, finish string) {
	a.begin, a.finish = object{"role": "assistant", "content": ""}, finish
	for _, piece := range pieces {
		a.pieces = append(a.pieces, object{"content": piece})
	}
	a.whole = object{"role": "assistant", "content": strings.Join(pieces, "")}
}

// call sets the answer of a chat to a tool call. Its arguments are split into pieces
// for streaming.
func (a *script) call(name, arguments string) {
	calls := func(arguments string) []object {
		return []object{{"id": newID("call_"), "type": "function", "function": object{"name": name, "arguments": arguments}}}
	}
	begun := calls("")
	begun[0]["index"] = 0 // in streams only
	a.begin = object{"role": "assistant", "tool_calls": begun}
	a.whole, a.finish = object{"role": "assistant", "tool_calls": calls(arguments)}, "tool_calls"
	for piece := range slices.Chunk([]rune(arguments), 8) {
		function := object{"arguments": string(piece)}
		a.pieces = append(a.pieces, object{"tool_calls": []any{object{"index": 0, "function": function}}})
	}
}
