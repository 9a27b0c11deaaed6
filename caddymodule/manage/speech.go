package manage

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// completion is as much of a chat completion, or of one event of its stream, as
// tests read.
type completion struct {
	Choices []struct {
		Delta        saying `json:"delta"`
		Message      saying `json:"message"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage struct {
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// saying is a message or a part of one.
type saying struct {
	Content json.RawMessage `json:"content"`
	// Servers use one name or the other for what a model thinks.
	ReasoningContent string `json:"reasoning_content"`
	Reasoning        string `json:"reasoning"`
	ToolCalls        []struct {
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// text is what is said, and whether anything is: thoughts count, but are not
// shown.
func (s *saying) text() (text string, something bool) {
	text = contentText(s.Content)
	return text, text != "" || s.ReasoningContent != "" || s.Reasoning != "" || isParts(s.Content)
}

// isParts tells whether content has parts, of which some models make thoughts.
func isParts(content json.RawMessage) bool {
	var parts []json.RawMessage
	return json.Unmarshal(content, &parts) == nil && len(parts) > 0
}

// contentText is the text in content, which is a string or a list of parts.
func contentText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct {
		Type string          `json:"type"`
		Text json.RawMessage `json:"text"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type == "text" && json.Unmarshal(p.Text, &text) == nil {
			b.WriteString(text)
		}
	}
	return b.String()
}

// toldError is a failure that the answer itself has, in words for people.
type toldError struct{ text string }

func (e *toldError) Error() string { return e.text }

func told(format string, args ...any) error {
	return &toldError{fmt.Sprintf(format, args...)}
}

// speech is what a model says, and when.
type speech struct {
	now         func() time.Time
	text        strings.Builder
	deltas      int // events with text or thoughts
	tokens      int // by the server's count; 0: it did not tell
	first, last time.Time
	finished    bool // the server said that this was the end
}

// stream hears a stream of events to its end, or until enough was heard.
func (s *speech) stream(r io.Reader) error {
	lines := bufio.NewScanner(io.LimitReader(r, maxTrialAnswer))
	lines.Buffer(nil, maxTrialAnswer)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			return nil
		}
		if err := s.event(data); err != nil {
			return err
		}
		if s.deltas >= trialDeltas {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if !s.finished {
		return told("the model's answer ended in the middle; the model server's own log may say why")
	}
	return nil
}

// event hears one event.
func (s *speech) event(data []byte) error {
	var c completion
	if err := json.Unmarshal(data, &c); err != nil {
		return told("the model server sent an event that cannot be read")
	}
	return s.hear(&c)
}

// whole hears an answer that is not streamed.
func (s *speech) whole(r io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(r, maxTrialAnswer))
	if err != nil {
		return err
	}
	var c completion
	if err := json.Unmarshal(data, &c); err != nil {
		return told("the model server's answer cannot be read")
	}
	return s.hear(&c)
}

func (s *speech) hear(c *completion) error {
	if len(c.Error) > 0 && string(c.Error) != "null" {
		text := "the model server failed in its answer"
		if reason := errorText([]byte(`{"error":` + string(c.Error) + `}`)); reason != "" {
			text += ": " + reason
		}
		return told("%s", text)
	}
	s.tokens = max(s.tokens, c.Usage.CompletionTokens)
	for i := range c.Choices {
		choice := &c.Choices[i]
		s.finished = s.finished || choice.FinishReason != ""
		for _, part := range []*saying{&choice.Delta, &choice.Message} {
			text, something := part.text()
			if !something {
				continue
			}
			s.last = s.now()
			if s.deltas == 0 {
				s.first = s.last
			}
			s.deltas++
			if s.text.Len() < maxTrialText {
				s.text.WriteString(text)
			}
		}
	}
	return nil
}
