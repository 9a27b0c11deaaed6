package play

import (
	"bytes"
	"fmt"
	"strconv"
)

// stampMark precedes the time of sending in an event, in nanoseconds.
const stampMark = `{"content":"@`

// StampOf returns the time of sending that a line of a stream holds.
func StampOf(line []byte) (int64, bool) {
	_, rest, found := bytes.Cut(line, []byte(stampMark))
	if !found || len(rest) < 19 {
		return 0, false
	}
	ns, err := strconv.ParseInt(string(rest[:19]), 10, 64)
	return ns, err == nil
}

// An answer is a script for one request. It appends to the buffers of others, as
// the server is to cost as little as it can.
type answer struct {
	Script
	model string
	usage bool     // the client wants the counts in a stream
	parts []string // of a tool's arguments
}

func newAnswer(s Script, model string) *answer {
	a := &answer{Script: s, model: model}
	if s.Tool {
		a.parts = s.pieces()
	}
	return a
}

// AppendCompletion appends the whole answer of a model to b.
func (s Script) AppendCompletion(b []byte, model string) []byte {
	return newAnswer(s, model).appendWhole(b)
}

// AppendStream appends all events of a stream with its counts to b.
func (s Script) AppendStream(b []byte, model string) []byte {
	a := newAnswer(s, model)
	a.usage = true
	for i := 0; ; i++ {
		var more bool
		if b, more = a.appendEvent(b, i); !more {
			return b
		}
	}
}

// appendHead appends what all answers begin with.
func (a *answer) appendHead(b []byte, object string) []byte {
	b = strconv.AppendInt(append(b, `{"id":"chatcmpl-`...), a.ID, 10)
	b = append(append(b, `","object":"`...), object...)
	b = append(append(b, `","created":1700000000,"model":"`...), a.model...)
	return append(b, `","choices":[`...)
}

// appendUsage appends the counts.
func (a *answer) appendUsage(b []byte) []byte {
	b = strconv.AppendInt(append(b, `"usage":{"prompt_tokens":20,"completion_tokens":`...), int64(a.Tokens), 10)
	return append(strconv.AppendInt(append(b, `,"total_tokens":`...), int64(a.Tokens+20), 10), '}')
}

// appendWhole appends the whole answer.
func (a *answer) appendWhole(b []byte) []byte {
	b = append(a.appendHead(b, "chat.completion"), `{"index":0,"message":{"role":"assistant","content":`...)
	if a.Tool {
		b = fmt.Appendf(b, `null,"tool_calls":[{"id":"call_%d","type":"function","function":{"name":%q,"arguments":%s}}]},`+
			`"finish_reason":"tool_calls"}],`,
			a.ID, ToolName, quote(a.Arguments()))
	} else {
		b = append(a.appendText(append(b, '"'), escaped), `"},"finish_reason":"stop"}],`...)
	}
	return append(a.appendUsage(b), '}')
}

// appendEvent appends event i of a stream: 0 is the role, then come the tokens,
// the finish, the usage, which may be empty, and the end. It returns false after
// the last one.
func (a *answer) appendEvent(b []byte, i int) ([]byte, bool) {
	switch {
	case i == 0 && a.Tool:
		return a.appendChunk(b, fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_%d",`+
			`"type":"function","function":{"name":%q,"arguments":""}}]}`,
			a.ID, ToolName), "null"), true
	case i == 0:
		return a.appendChunk(b, `{"role":"assistant","content":""}`, "null"), true
	case i <= a.Tokens && a.Tool:
		return a.appendChunk(b, `{"tool_calls":[{"index":0,"function":{"arguments":`+a.parts[i-1]+`}}]}`, "null"), true
	case i <= a.Tokens && a.Stamp:
		// The same length for every time.
		return a.appendChunk(b, fmt.Sprintf(`%s%019d"}`, stampMark, Monotonic()), "null"), true
	case i <= a.Tokens:
		b = append(a.appendHead(append(b, "data: "...), "chat.completion.chunk"), `{"index":0,"delta":{"content":"`...)
		return append(a.appendToken(b, i-1, escaped), `"},"finish_reason":null}]}`+"\n\n"...), true
	case i == a.Tokens+1 && a.Tool:
		return a.appendChunk(b, `{}`, `"tool_calls"`), true
	case i == a.Tokens+1:
		return a.appendChunk(b, `{}`, `"stop"`), true
	case i == a.Tokens+2 && a.usage:
		b = append(a.appendHead(append(b, "data: "...), "chat.completion.chunk"), "],"...)
		return append(a.appendUsage(b), "}\n\n"...), true
	case i == a.Tokens+2:
		return b, true
	case i == a.Tokens+3:
		return append(b, "data: [DONE]\n\n"...), true
	}
	return b, false
}

func (a *answer) appendChunk(b []byte, delta, finish string) []byte {
	b = append(a.appendHead(append(b, "data: "...), "chat.completion.chunk"), `{"index":0,"delta":`...)
	b = append(append(b, delta...), `,"finish_reason":`...)
	return append(append(b, finish...), "}]}\n\n"...)
}
