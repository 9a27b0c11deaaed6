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

// sampling holds the parameters that both completion endpoints share.
type sampling struct {
	Stream        bool  `json:"stream"`
	MaxTokens     int   `json:"max_tokens"` // 0: no limit
	N             int   `json:"n"`
	Stop          texts `json:"stop"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

func (s *sampling) check() error {
	switch {
	case s.N > 1:
		return invalid("n", "This model returns a single answer: n must be 1.")
	case s.MaxTokens < 0:
		return invalid("max_tokens", "max_tokens must be at least 1.")
	}
	return nil
}

type chatRequest struct {
	sampling
	Messages []struct {
		Role    string `json:"role"`
		Content texts  `json:"content"`
	} `json:"messages"`
	MaxCompletionTokens int        `json:"max_completion_tokens"`
	Tools               []tool     `json:"tools"`
	ToolChoice          toolChoice `json:"tool_choice"`
}

// object is a JSON object.
type object map[string]any

// script is an answer before it is encoded.
type script struct {
	id, object string // prefix of the answer's id, its type
	chunk      string // type of a stream's chunk
	field      string // of a chunk's choice
	begin      []any  // value of field in the first chunk, empty if that has a piece
	pieces     []any  // values of field in the next chunks, one a token
	end        any    // value of field in the last chunk
	whole      object // choice of a whole answer
	finish     string
	prompt     int // tokens
}

// newID returns an id in the format of the OpenAI API.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

// write sends the answer, as a stream if the client requested one.
func (m *model) write(w http.ResponseWriter, r *http.Request, s *sampling, a *script) error {
	answer := object{"id": newID(a.id), "object": a.object, "created": time.Now().Unix(), "model": ModelID}
	usage := object{"prompt_tokens": a.prompt, "completion_tokens": len(a.pieces), "total_tokens": a.prompt + len(a.pieces)}
	if s.Stream {
		answer["object"] = a.chunk
		return m.stream(w, r, answer, a, usage, s.StreamOptions.IncludeUsage)
	}
	for range a.pieces {
		if err := m.think(r); err != nil {
			return err
		}
	}
	a.whole["index"], a.whole["finish_reason"] = 0, a.finish
	answer["choices"], answer["usage"] = []any{a.whole}, usage
	return writeJSON(w, answer)
}

// stream sends the answer token by token. Each token is flushed.
func (m *model) stream(w http.ResponseWriter, r *http.Request, chunk object, a *script, usage object, withUsage bool) error {
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
	for i, value := range slices.Concat(a.begin, a.pieces, []any{a.end}) {
		choice := object{"index": 0, a.field: value, "finish_reason": nil}
		switch piece := i - len(a.begin); {
		case piece == len(a.pieces):
			choice["finish_reason"] = a.finish
		case piece >= 0:
			if err := m.think(r); err != nil {
				return err
			}
		}
		if err := send(choice); err != nil {
			return err
		}
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

// complete serves POST /v1/completions for a single text prompt.
func (m *model) complete(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		sampling
		Prompt texts `json:"prompt"`
	}
	q.MaxTokens = 16 // the API's default for this endpoint
	if err := decode(w, r, &q); err != nil {
		return err
	}
	if err := q.check(); err != nil {
		return err
	}
	if len(q.Prompt) != 1 {
		return invalid("prompt", "prompt must be a single string.")
	}
	pieces, finish := cut(reply("user", q.Prompt[0]), q.Stop, q.MaxTokens)
	a := &script{
		id: "cmpl-", object: "text_completion", chunk: "text_completion", field: "text", end: "",
		whole: object{"text": strings.Join(pieces, "")}, finish: finish, prompt: len(tokens(q.Prompt[0])),
	}
	for _, piece := range pieces {
		a.pieces = append(a.pieces, piece)
	}
	return m.write(w, r, &q.sampling, a)
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
	if len(q.Messages) == 0 {
		return invalid("messages", "messages must have at least one message.")
	}
	last := q.Messages[len(q.Messages)-1]
	text := strings.Join(last.Content, "\n")
	a := &script{id: "chatcmpl-", object: "chat.completion", chunk: "chat.completion.chunk", field: "delta", end: object{}}
	if t := pick(q.Tools, q.ToolChoice, last.Role, text); t != nil {
		arguments, err := json.Marshal(example(t.Function.Parameters))
		if err != nil {
			return fmt.Errorf("encoding arguments: %w", err)
		}
		a.call(t.Function.Name, string(arguments))
	} else {
		a.text(cut(reply(last.Role, text), q.Stop, q.MaxTokens))
	}
	for _, message := range q.Messages {
		a.prompt += len(tokens(strings.Join(message.Content, "\n")))
	}
	return m.write(w, r, &q.sampling, a)
}

// text sets the answer of a chat to text.
func (a *script) text(pieces []string, finish string) {
	a.begin, a.finish = []any{object{"role": "assistant", "content": ""}}, finish
	for _, piece := range pieces {
		a.pieces = append(a.pieces, object{"content": piece})
	}
	a.whole = object{"message": object{"role": "assistant", "content": strings.Join(pieces, "")}}
}

// call sets the answer of a chat to a tool call. Its arguments are split into pieces
// for streaming.
func (a *script) call(name, arguments string) {
	calls := func(arguments string) []object {
		return []object{{"id": newID("call_"), "type": "function", "function": object{"name": name, "arguments": arguments}}}
	}
	begun := calls("")
	begun[0]["index"] = 0 // in streams only
	a.begin = []any{object{"role": "assistant", "tool_calls": begun}}
	a.whole, a.finish = object{"message": object{"role": "assistant", "tool_calls": calls(arguments)}}, "tool_calls"
	for piece := range slices.Chunk([]rune(arguments), 8) {
		function := object{"arguments": string(piece)}
		a.pieces = append(a.pieces, object{"tool_calls": []any{object{"index": 0, "function": function}}})
	}
}
