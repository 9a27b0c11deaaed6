package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// The dialects.
const (
	chat      = "chat"
	responses = "responses"
	messages  = "messages"
)

var (
	dialects = []string{chat, responses, messages}
	paths    = map[string]string{chat: "/v1/chat/completions", responses: "/v1/responses", messages: "/v1/messages"}
)

// A habit is the way in which a client reads.
type habit string

const (
	reads  habit = "reads"
	leaves habit = "leaves" // leaves before the end
	pauses habit = "pauses" // stops reading for some seconds
	deaf   habit = "deaf"   // stops reading for longer than the gateway allows
)

// A request is a request of a client, and the way in which it is sent and read.
type request struct {
	play.Script
	dialect  string
	streamed bool
	stored   bool // with store: the gateway keeps the response
	model    *deployment
	key      *key
	gateway  *rig.Gateway
	habit    habit
	fresh    bool // uses a new connection
	leave    int  // leaves after this number of events, or in this percentage of the time of a whole answer
}

// kind returns the name of the request's kind in tables.
func (r *request) kind() string {
	return r.dialect + map[bool]string{true: " streamed"}[r.streamed]
}

// compose creates a random request. The caller sets its model, key and gateway.
func compose(random *rand.Rand, id int64) *request {
	r := &request{
		Script: play.Script{
			ID: id, Tokens: 4 + random.IntN(40), Pace: time.Duration(random.IntN(30)) * time.Millisecond,
			Tool: random.IntN(5) == 0,
		},
		dialect: pick(random, dialects), streamed: random.IntN(3) > 0, stored: random.IntN(20) == 0,
		habit: reads, fresh: random.IntN(2) == 0,
	}
	switch n := random.IntN(1000); {
	case n < 20:
		// If an idle connection ends at once, the connector assumes that the model server had closed it before, and
		// sends the request again. So this model server dies later.
		r.End, r.First = play.Dies, 500*time.Millisecond
	case n < 40:
		r.End = play.Fails
	case n < 70: // some think for longer than the interval of pings
		r.First = time.Duration(2+random.IntN(12)) * time.Second
	case n < 110:
		r.habit, r.leave = leaves, 1+random.IntN(80)
	case n < 113:
		r.habit = pauses
		r.fill(500)
	case n < 114:
		r.habit = deaf
		r.fill(1000)
	case n < 220: // a long answer, so that faults find it running
		r.Tokens, r.Pace = 100, time.Duration(30+random.IntN(60))*time.Millisecond
	}
	return r
}

// fill makes the answer a stream that is longer than the buffers between model and client. It is not a stream
// of responses, which repeat everything at the end.
func (r *request) fill(tokens int) {
	r.streamed, r.Tokens, r.Bulk, r.Pace, r.Tool = true, tokens, 16<<10, 0, false
	r.dialect = strings.Replace(r.dialect, responses, chat, 1)
}

// body returns the request's body.
func (r *request) body() []byte {
	prompt := "Please do what follows. " + r.Script.String()
	body := map[string]any{"model": r.model.name, "stream": r.streamed}
	parameters := json.RawMessage(`{"type":"object","properties":{"id":{"type":"integer"},"words":{"type":"string"}},` +
		`"required":["id","words"]}`)
	tool := map[string]any{"name": play.ToolName, "parameters": parameters}
	if r.dialect == responses {
		body["input"], body["store"] = prompt, r.stored
		tool["type"], tool["strict"] = "function", false
	} else {
		body["messages"] = []any{map[string]string{"role": "user", "content": prompt}}
	}
	switch r.dialect {
	case chat:
		tool = map[string]any{"type": "function", "function": tool}
	case messages:
		body["max_tokens"] = 4096
		tool = map[string]any{"name": play.ToolName, "input_schema": parameters}
	}
	if r.Tool {
		body["tools"] = []any{tool}
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // texts and numbers always encode
	}
	return b
}

// An outcome is the result of a request.
type outcome struct {
	*request
	began, ended time.Time
	symptom      symptom
	detail       string
	requestID    string
	status       int
	routes       [][]int // routes of the deployment during the request
}

// story describes a failure in full, without prompts, answers and secrets of keys.
func (o *outcome) story() string {
	return fmt.Sprintf("request %d, %s, tool %t, the model %v, the client %s, model %s of connectors %v, key "+
		"%s, fresh connection %t\n"+
		"  from %s to %s: %s, status %d, request id %q\n  %s",
		o.ID, o.kind(), o.Tool, o.End, o.habit, o.model.name, o.routes, o.key.id, o.fresh,
		clock(o.began), clock(o.ended), o.symptom, o.status, o.requestID, o.detail)
}

// clock formats a time of day.
func clock(t time.Time) string {
	if t.IsZero() {
		return "…"
	}
	return t.Format("15:04:05.000")
}

// A refusal is an error of the gateway, in any dialect.
type refusal struct{ Type, Code, Message string }

func (r *refusal) Error() string { return fmt.Sprintf("%s %s: %.200s", r.Type, r.Code, r.Message) }

// An object is an answer or an event of a stream, in any dialect. The dialects' fields do not conflict.
type object struct {
	Type    string
	Choices []struct { // chat
		Message, Delta struct {
			Content string
			Calls   []struct{ Function struct{ Arguments string } } `json:"tool_calls"`
		}
	}
	Delta    json.RawMessage // a string in responses, an object in messages
	Content  []block         // messages
	Output   []block         // responses
	Error    *refusal
	Response struct{ Error *refusal } // responses
}

// A block is a part of an answer in the responses or messages dialect.
type block struct {
	Text      string
	Content   []block         // of a message in responses
	Arguments string          // responses
	Input     json.RawMessage // messages
}

// An answer is the content of an answer, in any dialect, streamed or not.
type answer struct {
	text, arguments strings.Builder
	finished        bool // it has its proper end
	events          int
	refusal         *refusal // error that ended a stream
}

// errWrong reports a complete answer that differs from the script.
var errWrong = errors.New("a wrong answer")

// readWhole reads an answer that is not a stream.
func readWhole(body io.Reader) (*answer, error) {
	a := &answer{finished: true}
	raw, err := io.ReadAll(body)
	if err != nil {
		return a, err
	}
	_, err = a.take(raw)
	return a, err
}

// readStream reads a streamed answer to its end. It calls each after every event, with the number of events,
// and stops on its error.
func readStream(body io.Reader, each func(events int) error) (*answer, error) {
	a, r := &answer{}, bufio.NewReader(body)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return a, nil
		}
		if err != nil {
			return a, err
		}
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		if !ok {
			continue // a name, a ping, or the end of an event
		}
		a.events++
		if string(data) == "[DONE]" { // the end in chat; without a meaning in responses
			a.finished = a.finished || a.refusal == nil
		} else if err := a.takeEvent(data); err != nil {
			return a, err
		}
		if err := each(a.events); err != nil {
			return a, err
		}
	}
}

// take adds the text and the calls of an answer, or of an event of chat, and returns the decoded object.
func (a *answer) take(data []byte) (o object, err error) {
	if err := json.Unmarshal(data, &o); err != nil {
		return o, fmt.Errorf("%w: %w", errWrong, err)
	}
	for _, c := range o.Choices {
		a.text.WriteString(c.Message.Content + c.Delta.Content)
		for _, call := range append(c.Message.Calls, c.Delta.Calls...) {
			a.arguments.WriteString(call.Function.Arguments)
		}
	}
	a.add(o.Content)
	a.add(o.Output)
	return o, nil
}

func (a *answer) add(blocks []block) {
	for _, b := range blocks {
		a.text.WriteString(b.Text)
		a.arguments.WriteString(b.Arguments + string(b.Input))
		a.add(b.Content)
	}
}

// takeEvent adds the text and the calls of an event of any dialect.
func (a *answer) takeEvent(data []byte) error {
	o, err := a.take(data)
	if err != nil {
		return err
	}
	var delta struct {
		Text    string
		Partial string `json:"partial_json"`
	}
	switch o.Type {
	case "response.output_text.delta":
		err = json.Unmarshal(o.Delta, &delta.Text)
	case "response.function_call_arguments.delta":
		err = json.Unmarshal(o.Delta, &delta.Partial)
	case "content_block_delta":
		err = json.Unmarshal(o.Delta, &delta)
	case "message_stop", "response.completed":
		a.finished = true
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	a.text.WriteString(delta.Text)
	a.arguments.WriteString(delta.Partial)
	for _, r := range []*refusal{o.Error, o.Response.Error} {
		if r != nil {
			a.refusal = r
		}
	}
	return nil
}

// verify compares the answer with its script.
func (a *answer) verify(s play.Script) error {
	text, arguments := s.Text(), ""
	if s.Tool {
		text, arguments = "", s.Arguments()
	}
	got, want := a.text.String()+"|"+a.arguments.String(), text+"|"+arguments
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	if got != want { // test data, not a secret
		return fmt.Errorf("%w: text and arguments have %d bytes instead of %d; from byte %d it is %.60q instead of %.60q",
			errWrong, len(got), len(want), i, got[i:], want[i:])
	}
	return nil
}

// readRefusal reads the body of an answer with an error status.
func readRefusal(body io.Reader) *refusal {
	raw, err := io.ReadAll(io.LimitReader(body, 64<<10))
	var o object
	if err != nil || json.Unmarshal(raw, &o) != nil || o.Error == nil {
		return &refusal{Type: "unreadable", Message: string(raw)}
	}
	return o.Error
}
