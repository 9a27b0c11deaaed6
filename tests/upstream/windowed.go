package upstream

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
)

// Overflow is what a server does with a prompt that is longer than its window.
type Overflow int

const (
	// Refuses is vLLM's: a prompt is refused if it has no room for max_tokens, too. The window is listed.
	Refuses Overflow = iota
	// CutsToHalf is Ollama's of a long message: four tokens and the last half of the window are kept.
	CutsToHalf
	// DropsTurns is Ollama's of a conversation: old turns are dropped until the rest fits. A last message that does
	// not fit is cut to half.
	DropsTurns
)

// A Windowed is a model server with a context window. Its answers come from Reply.
type Windowed struct {
	Window   int
	Overflow Overflow
	Count    func(messages []json.RawMessage, tools json.RawMessage) int // the tokens of a prompt
	Reply    func(q *ChatRequest) Reply                                  // default: a short text
	Exact    bool                                                        // a refusal names the tokens of the prompt

	mu                     sync.Mutex
	answered, cut, refused int
}

// A ChatRequest is what the server reads of a request.
type ChatRequest struct {
	Messages            []json.RawMessage
	Tools               json.RawMessage
	Stream              bool
	MaxTokens           int `json:"max_tokens"`
	MaxCompletionTokens int `json:"max_completion_tokens"`
}

// A Reply is a text, or the call of a tool if it has a name.
type Reply struct {
	Text, Tool, Arguments string
	More                  []Reply // further calls
}

// Ours returns a count of prompts with our tokenizer and the overhead of templates. The tokenizer of a model has ratio
// tokens for one of ours.
func Ours(ratio float64) func(messages []json.RawMessage, tools json.RawMessage) int {
	counter := tokens.NewCounter()
	return func(messages []json.RawMessage, tools json.RawMessage) int {
		n := 0
		for _, m := range append(messages, tools) {
			n += 4 + counter.Text("", texts(m))
		}
		return int(math.Ceil(ratio * float64(n)))
	}
}

// texts returns all strings of a JSON value, its names among them.
func texts(raw json.RawMessage) (all string) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			all += v + "\n"
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for name, e := range v {
				all += name + " "
				walk(e)
			}
		}
	}
	var v any
	if json.Unmarshal(raw, &v) == nil {
		walk(v)
	}
	return all
}

// Numbers returns how many prompts were answered, how many of those were cut, and how many were refused.
func (w *Windowed) Numbers() (answered, cut, refused int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answered, w.cut, w.refused
}

// Serve lets a server answer so. It lists a model, and the window if it refuses longer prompts.
func (w *Windowed) Serve(s *Server, model string) {
	s.Handle("", w.answer)
	list := map[string]any{"id": model, "object": "model"}
	if w.Overflow == Refuses {
		list["max_model_len"] = w.Window
	}
	body, _ := json.Marshal(map[string]any{"object": "list", "data": []any{list}})
	s.Handle(modelList, JSON(string(body)))
}

func (w *Windowed) answer(x *Exchange) {
	var q ChatRequest
	if err := json.Unmarshal(x.Request.Body, &q); err != nil || len(q.Messages) == 0 {
		x.Answer(http.StatusNotFound, "text/plain", OllamaUnknownPath)
		return
	}
	n := w.Count(q.Messages, q.Tools)
	whole := n
	switch {
	case w.Overflow == Refuses:
		if refusal := w.refusal(n, max(q.MaxTokens, q.MaxCompletionTokens)); refusal != "" {
			w.note(&w.refused)
			body, _ := json.Marshal(map[string]any{"error": map[string]any{
				"message": refusal, "type": "BadRequestError", "param": nil, "code": http.StatusBadRequest,
			}})
			x.Answer(http.StatusBadRequest, "application/json", string(body))
			return
		}
	case w.Overflow == DropsTurns:
		n = w.withoutTurns(&q)
	}
	if n > w.Window {
		n = w.Window/2 + 2
	}
	w.note(&w.answered)
	if n < whole {
		w.note(&w.cut)
	}
	reply := Reply{Text: "The answer of the model."}
	if w.Reply != nil {
		reply = w.Reply(&q)
	}
	w.send(x, &q, reply, n)
}

func (w *Windowed) note(number *int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*number++
}

// refusal returns vLLM's text about a prompt of n tokens and its output, "" if both fit.
func (w *Windowed) refusal(n, output int) string {
	switch {
	case n >= w.Window:
		return fmt.Sprintf("This model's maximum context length is %d tokens. However, your request has %d input tokens. "+
			"Please reduce the length of the input messages.", w.Window, n)
	case n+output <= w.Window:
		return ""
	case w.Exact:
		return fmt.Sprintf("'max_tokens' or 'max_completion_tokens' is too large: %d. This model's maximum context length "+
			"is %d tokens and your request has %d input tokens (%d > %d - %d).", output, w.Window, n, output, w.Window, n)
	}
	least := w.Window - output + 1
	return fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %d output tokens and "+
		"your prompt contains at least %d input tokens, for a total of at least %d tokens. Please reduce the length of the "+
		"input prompt or the number of requested output tokens.", w.Window, output, least, least+output)
}

// withoutTurns returns the tokens of a prompt after old messages were dropped, so that the rest fits: all but the
// system's and the last one, if necessary.
func (w *Windowed) withoutTurns(q *ChatRequest) (n int) {
	var system []json.RawMessage
	for from := range q.Messages {
		if n = w.Count(append(slices.Clone(system), q.Messages[from:]...), q.Tools); n <= w.Window {
			break
		}
		var m struct{ Role string }
		if json.Unmarshal(q.Messages[from], &m) == nil && m.Role == "system" {
			system = append(system, q.Messages[from])
		}
	}
	return n
}

// send sends a reply, whole or as a stream.
func (w *Windowed) send(x *Exchange, q *ChatRequest, r Reply, prompt int) {
	model, finish := x.Request.Model, "stop"
	if !q.Stream {
		body, _ := json.Marshal(map[string]any{
			"id": "chatcmpl-w", "object": "chat.completion", "model": model,
			"choices": []any{map[string]any{
				"index": 0, "finish_reason": finish, "message": map[string]any{"role": "assistant", "content": r.Text},
			}},
			"usage": map[string]any{"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5},
		})
		x.Answer(http.StatusOK, "application/json", string(body))
		return
	}
	piece := Delta(model, r.Text)
	if r.Tool != "" {
		var calls []string
		for i, c := range append([]Reply{r}, r.More...) {
			calls = append(calls, fmt.Sprintf(`{"index":%d,"id":"call_%d_%d","type":"function","function":{"name":%s,`+
				`"arguments":%s}}`, i, len(q.Messages), i, quote(c.Tool), quote(c.Arguments)))
		}
		finish, piece = "tool_calls", ToolDelta(model, strings.Join(calls, ","))
	}
	Events(Role(model), piece, Finish(model, finish), Usage(model, prompt, 5), Done)(x)
}
