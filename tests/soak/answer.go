package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/postern-dev/postern/tests/upstream/play"
)

// A told is an error as the gateway tells it, in any dialect.
type told struct {
	Type    string  `json:"type"`
	Code    *string `json:"code"`
	Message string  `json:"message"`
}

func (t *told) Error() string {
	kind := t.Type
	if t.Code != nil && *t.Code != "" {
		kind = *t.Code
	}
	return fmt.Sprintf("%s: %.200s", kind, t.Message)
}

// An answer is what a model said, in any dialect, streamed or not.
type answer struct {
	text, arguments string
	finished        bool // its end is there
	events          int
	told            *told // what ended a stream
}

// verify compares the answer with its script.
func (a *answer) verify(s play.Script) error {
	text, arguments := s.Text(), ""
	if s.Tool {
		text, arguments = "", s.Arguments()
	}
	switch {
	case a.text != text:
		return different("text", a.text, text)
	case a.arguments != arguments:
		return different("tool's arguments", a.arguments, arguments)
	}
	return nil
}

// different says where two texts part. They are the soak's own, no secrets.
func different(what, got, want string) error {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	cut := func(s string) string { return s[at:min(len(s), at+60)] }
	return fmt.Errorf("the %s has %d bytes instead of %d; from byte %d it is %q instead of %q", what, len(got), len(want), at, cut(got), cut(want))
}

// A call is a tool's call in the chat dialect.
type call struct {
	Function struct{ Arguments string }
}

// message is what holds text and calls in the chat dialect.
type message struct {
	Content *string
	Calls   []call `json:"tool_calls"`
}

func (m *message) addTo(text, arguments *strings.Builder) {
	if m == nil {
		return
	}
	if m.Content != nil {
		text.WriteString(*m.Content)
	}
	for _, c := range m.Calls {
		arguments.WriteString(c.Function.Arguments)
	}
}

// An object is an answer, or an event of one, in any of the dialects: their
// fields do not contradict each other.
type object struct {
	Type     string
	Choices  []struct{ Message, Delta *message } // chat
	Delta    json.RawMessage                     // a string in responses, an object in messages
	Content  []block                             // messages
	Output   []block                             // responses
	Error    *told
	Response *struct{ Error *told } // responses
}

// A block is a part of an answer in the dialects responses and messages.
type block struct {
	Type      string
	Text      string
	Content   []block         // of a message in responses
	Arguments string          // responses
	Input     json.RawMessage // messages
}

func (b *block) addTo(text, arguments *strings.Builder) {
	text.WriteString(b.Text)
	arguments.WriteString(b.Arguments)
	arguments.Write(b.Input)
	for i := range b.Content {
		b.Content[i].addTo(text, arguments)
	}
}

// readWhole reads an answer that is no stream.
func readWhole(body io.Reader) (a answer, err error) {
	raw, err := io.ReadAll(body)
	if err != nil {
		return a, err
	}
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return a, fmt.Errorf("%w: %w", errWrong, err)
	}
	var text, arguments strings.Builder
	for _, c := range o.Choices {
		c.Message.addTo(&text, &arguments)
	}
	for _, list := range [][]block{o.Content, o.Output} {
		for i := range list {
			list[i].addTo(&text, &arguments)
		}
	}
	return answer{text: text.String(), arguments: arguments.String(), finished: true}, nil
}

// errWrong is an answer that came whole and is not what it should be.
var errWrong = errors.New("not a valid answer")

// readStream reads a streamed answer to its end. each is called after every
// event, with the number of them; its error ends the reading.
func readStream(body io.Reader, each func(events int) error) (a answer, err error) {
	var text, arguments strings.Builder
	r := bufio.NewReader(body)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			break
		}
		if err != nil {
			return a, err
		}
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		if !ok {
			continue // a name, a ping, or the end of an event
		}
		a.events++
		if err := a.take(data, &text, &arguments); err != nil {
			return a, err
		}
		if err := each(a.events); err != nil {
			return a, err
		}
	}
	a.text, a.arguments = text.String(), arguments.String()
	return a, nil
}

// take takes one event's data.
func (a *answer) take(data []byte, text, arguments *strings.Builder) error {
	if string(data) == "[DONE]" { // of chat and responses; in responses it says nothing
		a.finished = a.finished || a.told == nil
		return nil
	}
	var o object
	if err := json.Unmarshal(data, &o); err != nil {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	for _, c := range o.Choices {
		c.Delta.addTo(text, arguments)
	}
	switch o.Type {
	case "response.output_text.delta":
		return addString(text, o.Delta)
	case "response.function_call_arguments.delta":
		return addString(arguments, o.Delta)
	case "content_block_delta":
		var d struct {
			Text    string
			Partial string `json:"partial_json"`
		}
		if err := json.Unmarshal(o.Delta, &d); err != nil {
			return fmt.Errorf("%w: %w", errWrong, err)
		}
		text.WriteString(d.Text)
		arguments.WriteString(d.Partial)
	case "message_stop", "response.completed":
		a.finished = true
	}
	if o.Error != nil {
		a.told = o.Error
	}
	if o.Response != nil && o.Response.Error != nil {
		a.told = o.Response.Error
	}
	return nil
}

// addString adds a JSON string.
func addString(b *strings.Builder, raw json.RawMessage) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	b.WriteString(s)
	return nil
}

// readError reads the body of an answer with an error status.
func readError(body io.Reader) *told {
	raw, err := io.ReadAll(io.LimitReader(body, 64<<10))
	var o object
	if err != nil || json.Unmarshal(raw, &o) != nil || o.Error == nil {
		return &told{Type: "unreadable", Message: string(raw)}
	}
	return o.Error
}
