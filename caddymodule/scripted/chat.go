package scripted

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
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
		Role    string  `json:"role"`
		Content content `json:"content"`
	} `json:"messages"`
	MaxCompletionTokens int        `json:"max_completion_tokens"`
	Tools               []tool     `json:"tools"`
	ToolChoice          toolChoice `json:"tool_choice"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

type functionCall struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type toolCall struct {
	Index    *int         `json:"index,omitempty"` // in streams only
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function functionCall `json:"function"`
}

// message is a whole answer or, in a stream, a piece of one.
type message struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// choice is the only choice of an answer. A chat has a message or a delta, a
// completion has text.
type choice struct {
	Index        int      `json:"index"`
	Message      *message `json:"message,omitempty"`
	Delta        *message `json:"delta,omitempty"`
	Text         *string  `json:"text,omitempty"`
	FinishReason *string  `json:"finish_reason"`
}

// answer is a whole answer or, in a stream, a chunk of one.
type answer struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
}

// script is an answer before it is encoded.
type script struct {
	id            string   // prefix of the answer's id
	object, chunk string   // type of a whole answer and of a chunk
	pieces        []string // of the text, or of a call's arguments
	finish        string
	prompt        int    // tokens of the prompt
	first, last   choice // of a stream; first is zero if the stream begins with a piece

	whole func(text string) choice  // returns the choice of a whole answer
	piece func(piece string) choice // returns the choice of a chunk
}

// newID returns an id in the format of the OpenAI API.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

// write sends the answer, as a stream if the client requested one.
func (m *model) write(w http.ResponseWriter, r *http.Request, s *sampling, a *script) error {
	head := answer{ID: newID(a.id), Object: a.object, Created: time.Now().Unix(), Model: ModelID}
	total := &usage{a.prompt, len(a.pieces), a.prompt + len(a.pieces)}
	if s.Stream {
		head.Object = a.chunk
		return m.stream(w, r, head, a, total, s.StreamOptions.IncludeUsage)
	}
	for range a.pieces {
		if err := m.think(r); err != nil {
			return err
		}
	}
	whole := a.whole(strings.Join(a.pieces, ""))
	whole.FinishReason = &a.finish
	head.Choices, head.Usage = []choice{whole}, total
	return writeJSON(w, head)
}

// stream sends the answer token by token. Each token is flushed.
func (m *model) stream(w http.ResponseWriter, r *http.Request, head answer, a *script, total *usage, withUsage bool) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	flush := http.NewResponseController(w).Flush
	send := func(choices ...choice) error {
		head.Choices = choices
		data, err := json.Marshal(head)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil {
			return err
		}
		return flush()
	}
	if a.first != (choice{}) {
		if err := send(a.first); err != nil {
			return err
		}
	}
	for _, piece := range a.pieces {
		if err := m.think(r); err != nil {
			return err
		}
		if err := send(a.piece(piece)); err != nil {
			return err
		}
	}
	a.last.FinishReason = &a.finish
	if err := send(a.last); err != nil {
		return err
	}
	if withUsage {
		head.Usage = total
		if err := send([]choice{}...); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(w, "data: [DONE]\n\n")
	return err
}

// think waits for the duration of one token. It returns an error if the client
// disconnects.
func (m *model) think(r *http.Request) error {
	select {
	case <-r.Context().Done():
		return r.Context().Err()
	case <-time.After(m.delay):
		return nil
	}
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
	text := func(text string) choice { return choice{Text: &text} }
	a := &script{
		id: "cmpl-", object: "text_completion", chunk: "text_completion",
		prompt: len(tokens(q.Prompt[0])), last: text(""), whole: text, piece: text,
	}
	a.pieces, a.finish = cut(reply("user", q.Prompt[0]), q.Stop, q.MaxTokens)
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
	a := scriptText(cut(reply(last.Role, string(last.Content)), q.Stop, q.MaxTokens))
	if t := pick(q.Tools, q.ToolChoice, last.Role, string(last.Content)); t != nil {
		arguments, err := json.Marshal(t.Function.Parameters.example())
		if err != nil {
			return fmt.Errorf("encoding arguments: %w", err)
		}
		a = scriptCall(t.Function.Name, string(arguments))
	}
	a.id, a.object, a.chunk, a.last = "chatcmpl-", "chat.completion", "chat.completion.chunk", choice{Delta: new(message)}
	for _, message := range q.Messages {
		a.prompt += len(tokens(string(message.Content)))
	}
	return m.write(w, r, &q.sampling, a)
}

// scriptText returns the answer of a chat as text.
func scriptText(pieces []string, finish string) *script {
	return &script{
		pieces: pieces, finish: finish,
		first: choice{Delta: &message{Role: "assistant", Content: new(string)}},
		whole: func(text string) choice { return choice{Message: &message{Role: "assistant", Content: &text}} },
		piece: func(text string) choice { return choice{Delta: &message{Content: &text}} },
	}
}

// scriptCall returns the answer of a chat as a tool call. Its arguments are split
// into pieces for streaming.
func scriptCall(name, arguments string) *script {
	a := &script{finish: "tool_calls"}
	for piece := range slices.Chunk([]rune(arguments), 8) {
		a.pieces = append(a.pieces, string(piece))
	}
	call := toolCall{ID: newID("call_"), Type: "function", Function: functionCall{Name: name}}
	a.whole = func(text string) choice {
		call := call
		call.Function.Arguments = text
		return choice{Message: &message{Role: "assistant", ToolCalls: []toolCall{call}}}
	}
	a.piece = func(text string) choice {
		return choice{Delta: &message{ToolCalls: []toolCall{{Index: new(int), Function: functionCall{Arguments: text}}}}}
	}
	begun := call
	begun.Index = new(int)
	a.first = choice{Delta: &message{Role: "assistant", ToolCalls: []toolCall{begun}}}
	return a
}
