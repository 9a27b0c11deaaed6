package scripted

import (
	"encoding/json"
	"fmt"
	"net/http"
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

type chatChoice struct {
	Index        int      `json:"index"`
	Message      *message `json:"message,omitempty"`
	Delta        *message `json:"delta,omitempty"`
	FinishReason *string  `json:"finish_reason"`
}

type chatAnswer struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *usage       `json:"usage,omitempty"`
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
	run := &chatRun{m: m, w: w, r: r, q: &q, head: chatAnswer{ID: newID("chatcmpl-"), Created: m.now().Unix(), Model: ModelID}}
	if err := run.compose(prompt); err != nil {
		return err
	}
	if q.Stream {
		return run.stream()
	}
	return run.whole()
}

// chatRun is one answer being written.
type chatRun struct {
	m    *Model
	w    http.ResponseWriter
	r    *http.Request
	q    *chatRequest
	head chatAnswer

	pieces []string  // of the text or, with a call, of its arguments
	call   *toolCall // nil: the answer is text
	finish string
	usage  *usage
}

// compose decides what will be said; prompt is the number of tokens asked.
func (c *chatRun) compose(prompt int) error {
	last := c.q.Messages[len(c.q.Messages)-1]
	if t := pick(c.q.Tools, c.q.ToolChoice, last.Role, string(last.Content)); t != nil {
		arguments, err := json.Marshal(t.Function.Parameters.example())
		if err != nil {
			return fmt.Errorf("encoding arguments: %w", err)
		}
		c.call = &toolCall{ID: newID("call_"), Type: "function", Function: functionCall{Name: t.Function.Name}}
		c.pieces, c.finish = pieces(string(arguments)), "tool_calls"
	} else {
		c.pieces, c.finish = cut(reply(last.Role, string(last.Content)), c.q.Stop, c.q.limit())
	}
	c.usage = newUsage(prompt, len(c.pieces))
	return nil
}

// pieces cuts arguments so that a client sees them come in parts.
func pieces(text string) []string {
	const size = 8
	var out []string
	for runes := []rune(text); len(runes) > 0; {
		n := min(size, len(runes))
		out = append(out, string(runes[:n]))
		runes = runes[n:]
	}
	return out
}

// whole answers at once, after the time that the tokens take.
func (c *chatRun) whole() error {
	text := ""
	for _, piece := range c.pieces {
		if err := c.m.think(c.r); err != nil {
			return err
		}
		text += piece
	}
	said := &message{Role: "assistant", Content: &text}
	if c.call != nil {
		c.call.Function.Arguments = text
		said = &message{Role: "assistant", ToolCalls: []toolCall{*c.call}}
	}
	c.head.Object = "chat.completion"
	c.head.Choices = []chatChoice{{Message: said, FinishReason: &c.finish}}
	c.head.Usage = c.usage
	return answer(c.w, c.head)
}

// stream answers token by token.
func (c *chatRun) stream() error {
	c.head.Object = "chat.completion.chunk"
	s := newEvents(c.w)
	empty := ""
	first := message{Role: "assistant", Content: &empty}
	if c.call != nil {
		c.call.Index = new(int)
		first = message{Role: "assistant", ToolCalls: []toolCall{*c.call}}
	}
	if err := c.send(s, first, nil); err != nil {
		return err
	}
	for _, piece := range c.pieces {
		if err := c.m.think(c.r); err != nil {
			return err
		}
		delta := message{Content: &piece}
		if c.call != nil {
			delta = message{ToolCalls: []toolCall{{Index: new(int), Function: functionCall{Arguments: piece}}}}
		}
		if err := c.send(s, delta, nil); err != nil {
			return err
		}
	}
	if err := c.send(s, message{}, &c.finish); err != nil {
		return err
	}
	if c.q.StreamOptions.IncludeUsage {
		c.head.Choices, c.head.Usage = []chatChoice{}, c.usage
		if err := s.send(c.head); err != nil {
			return err
		}
	}
	return s.done()
}

func (c *chatRun) send(s *events, delta message, finish *string) error {
	c.head.Choices = []chatChoice{{Delta: &delta, FinishReason: finish}}
	return s.send(c.head)
}
