package scripted

import (
	"net/http"
	"strings"
)

// defaultCompletion is the API's own default for max_tokens of this endpoint.
const defaultCompletion = 16

type completeRequest struct {
	sampling
	Prompt texts `json:"prompt"`
}

type textChoice struct {
	Index        int     `json:"index"`
	Text         string  `json:"text"`
	FinishReason *string `json:"finish_reason"`
}

type textAnswer struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []textChoice `json:"choices"`
	Usage   *usage       `json:"usage,omitempty"`
}

// complete serves POST /v1/completions for one prompt of text.
func (m *Model) complete(w http.ResponseWriter, r *http.Request) error {
	var q completeRequest
	if err := decode(w, r, &q); err != nil {
		return err
	}
	if q.MaxTokens == nil {
		limit := defaultCompletion
		q.MaxTokens = &limit
	}
	if err := q.check(); err != nil {
		return err
	}
	if len(q.Prompt) != 1 {
		return invalid("prompt", "prompt must be one text.")
	}
	left, finish := cut(reply("user", q.Prompt[0]), q.Stop, q.limit())
	run := &textRun{
		m: m, w: w, r: r, tokens: left, finish: finish,
		usage: newUsage(len(tokens(q.Prompt[0])), len(left)),
		head:  textAnswer{ID: newID("cmpl-"), Object: "text_completion", Created: m.now().Unix(), Model: ModelID},
	}
	if q.Stream {
		return run.stream(q.StreamOptions.IncludeUsage)
	}
	return run.whole()
}

// textRun is one answer being written.
type textRun struct {
	m      *Model
	w      http.ResponseWriter
	r      *http.Request
	head   textAnswer
	tokens []string
	finish string
	usage  *usage
}

// whole answers at once, after the time that the tokens take.
func (t *textRun) whole() error {
	for range t.tokens {
		if err := t.m.think(t.r); err != nil {
			return err
		}
	}
	t.head.Choices = []textChoice{{Text: strings.Join(t.tokens, ""), FinishReason: &t.finish}}
	t.head.Usage = t.usage
	return answer(t.w, t.head)
}

// stream answers token by token.
func (t *textRun) stream(includeUsage bool) error {
	s := newEvents(t.w)
	for _, token := range t.tokens {
		if err := t.m.think(t.r); err != nil {
			return err
		}
		t.head.Choices = []textChoice{{Text: token}}
		if err := s.send(t.head); err != nil {
			return err
		}
	}
	t.head.Choices = []textChoice{{FinishReason: &t.finish}}
	if err := s.send(t.head); err != nil {
		return err
	}
	if includeUsage {
		t.head.Choices, t.head.Usage = []textChoice{}, t.usage
		if err := s.send(t.head); err != nil {
			return err
		}
	}
	return s.done()
}
