package scripted

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// sampling is what the two completion endpoints share.
type sampling struct {
	Stream        bool  `json:"stream"`
	MaxTokens     *int  `json:"max_tokens"`
	N             *int  `json:"n"`
	Stop          texts `json:"stop"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

func (s *sampling) check() error {
	if s.N != nil && *s.N != 1 {
		return invalid("n", "This model gives one answer only: n must be 1.")
	}
	if s.MaxTokens != nil && *s.MaxTokens < 1 {
		return invalid("max_tokens", "max_tokens must be at least 1.")
	}
	return nil
}

func (s *sampling) limit() int {
	if s.MaxTokens == nil {
		return 0
	}
	return *s.MaxTokens
}

type chatMessage struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

type chatRequest struct {
	sampling
	Messages            []chatMessage `json:"messages"`
	MaxCompletionTokens *int          `json:"max_completion_tokens"`
	Tools               []tool        `json:"tools"`
	ToolChoice          toolChoice    `json:"tool_choice"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

func newUsage(prompt, completion int) *usage {
	return &usage{PromptTokens: prompt, CompletionTokens: completion, TotalTokens: prompt + completion}
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

// choice is the one choice of an answer: of a chat with a message or a delta, of
// a completion with text.
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

// run is one answer that is being written.
type run struct {
	m        *Model
	w        http.ResponseWriter
	r        *http.Request
	sampling *sampling
	head     answer

	whole, chunk string // the types of objects

	pieces []string // of the text or, of a call, of its arguments
	finish string
	usage  *usage
	first  *choice // what a stream begins with, nil if it is a piece
	// render makes a choice of a piece, or of the whole text.
	render func(text string, whole bool) choice
}

// start begins an answer.
func (m *Model) start(w http.ResponseWriter, r *http.Request, s *sampling, prefix string) *run {
	return &run{m: m, w: w, r: r, sampling: s, head: answer{ID: newID(prefix), Created: m.now().Unix(), Model: ModelID}}
}

// write answers as the client wants it: at once, or token by token.
func (a *run) write() error {
	if a.sampling.Stream {
		return a.stream()
	}
	var text strings.Builder
	for _, piece := range a.pieces {
		if err := a.m.think(a.r); err != nil {
			return err
		}
		text.WriteString(piece)
	}
	whole := a.render(text.String(), true)
	whole.FinishReason = &a.finish
	a.head.Object, a.head.Choices, a.head.Usage = a.whole, []choice{whole}, a.usage
	return writeJSON(a.w, a.head)
}

// stream answers token by token.
func (a *run) stream() error {
	a.head.Object = a.chunk
	s := newEvents(a.w)
	send := func(choices ...choice) error {
		a.head.Choices = choices
		return s.send(a.head)
	}
	if a.first != nil {
		if err := send(*a.first); err != nil {
			return err
		}
	}
	for _, piece := range a.pieces {
		if err := a.m.think(a.r); err != nil {
			return err
		}
		if err := send(a.render(piece, false)); err != nil {
			return err
		}
	}
	last := a.render("", false)
	last.FinishReason = &a.finish
	if last.Delta != nil {
		last.Delta = new(message)
	}
	if err := send(last); err != nil {
		return err
	}
	if a.sampling.StreamOptions.IncludeUsage {
		a.head.Usage = a.usage
		if err := send([]choice{}...); err != nil {
			return err
		}
	}
	return s.done()
}

func (m *Model) chat(w http.ResponseWriter, r *http.Request) error {
	var q chatRequest
	if err := decode(w, r, &q); err != nil {
		return err
	}
	if q.MaxCompletionTokens != nil {
		q.MaxTokens = q.MaxCompletionTokens
	}
	if err := q.check(); err != nil {
		return err
	}
	if len(q.Messages) == 0 {
		return invalid("messages", "messages must have at least one message.")
	}
	prompt := 0
	for i, message := range q.Messages {
		if message.Role == "" {
			return invalid(fmt.Sprintf("messages[%d].role", i), "Every message needs a role.")
		}
		prompt += len(tokens(string(message.Content)))
	}
	run := m.start(w, r, &q.sampling, "chatcmpl-")
	if err := run.composeChat(&q, prompt); err != nil {
		return err
	}
	return run.write()
}

// composeChat decides on the answer; prompt is the number of the prompt's tokens.
func (a *run) composeChat(q *chatRequest, prompt int) error {
	a.whole, a.chunk = "chat.completion", "chat.completion.chunk"
	last := q.Messages[len(q.Messages)-1]
	t := pick(q.Tools, q.ToolChoice, last.Role, string(last.Content))
	if t == nil {
		a.pieces, a.finish = cut(reply(last.Role, string(last.Content)), q.Stop, q.limit())
		a.render = func(text string, whole bool) choice {
			if whole {
				return choice{Message: &message{Role: "assistant", Content: &text}}
			}
			return choice{Delta: &message{Content: &text}}
		}
		a.first = &choice{Delta: &message{Role: "assistant", Content: new(string)}}
	} else if err := a.composeCall(t); err != nil {
		return err
	}
	a.usage = newUsage(prompt, len(a.pieces))
	return nil
}

// composeCall makes the answer a call of a tool.
func (a *run) composeCall(t *tool) error {
	arguments, err := json.Marshal(t.Function.Parameters.example())
	if err != nil {
		return fmt.Errorf("encoding arguments: %w", err)
	}
	call := toolCall{ID: newID("call_"), Type: "function", Function: functionCall{Name: t.Function.Name}}
	a.pieces, a.finish = pieces(string(arguments)), "tool_calls"
	a.render = func(text string, whole bool) choice {
		if whole {
			call.Function.Arguments = text
			return choice{Message: &message{Role: "assistant", ToolCalls: []toolCall{call}}}
		}
		return choice{Delta: &message{ToolCalls: []toolCall{{Index: new(int), Function: functionCall{Arguments: text}}}}}
	}
	begun := call
	begun.Index = new(int)
	a.first = &choice{Delta: &message{Role: "assistant", ToolCalls: []toolCall{begun}}}
	return nil
}

// pieces cuts arguments so that a client sees them come in parts.
func pieces(text string) []string {
	var out []string
	for piece := range slices.Chunk([]rune(text), 8) {
		out = append(out, string(piece))
	}
	return out
}
