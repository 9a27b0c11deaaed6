package main

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The model's public name, which clients use, and its name at the upstream
// behind Postern. The upstream answers with whichever name it was asked for, so
// that a client must see the public one in every case.
const (
	publicModel = "bench"
	localModel  = "bench-local-8b"
)

// A script tells the upstream what to answer. It travels inside the prompt,
// which no gateway changes.
type script struct {
	Tokens int           // events with text; 0 asks for one whole completion
	Pace   time.Duration // between two events; 0 writes them as fast as it can
	Seed   int           // chooses the texts
	Stamp  bool          // the texts are times of sending
	Ragged bool          // writes end within events and runes
}

// scriptMark begins a script within a prompt, scriptEnd ends it.
const (
	scriptMark = "bench/"
	scriptEnd  = "/"
)

// String returns the script as it stands in a prompt.
func (s script) String() string {
	return fmt.Sprintf("%s%d,%d,%d,%t,%t%s", scriptMark, s.Tokens, s.Pace.Microseconds(), s.Seed, s.Stamp, s.Ragged, scriptEnd)
}

// parseScript finds the script in a request body.
func parseScript(body []byte) (script, error) {
	// The last one: prompts may hold anything before it.
	at := bytes.LastIndex(body, []byte(scriptMark))
	if at < 0 {
		return script{}, errors.New("the body holds no script")
	}
	text, _, closed := bytes.Cut(body[at+len(scriptMark):], []byte(scriptEnd))
	fields := bytes.Split(text, []byte(","))
	if !closed || len(fields) != 5 {
		return script{}, errors.New("the script is not five fields")
	}
	var numbers [3]int
	for i := range numbers {
		n, err := strconv.Atoi(string(fields[i]))
		if err != nil || n < 0 {
			return script{}, fmt.Errorf("field %d of the script is not a number", i+1)
		}
		numbers[i] = n
	}
	return script{
		Tokens: numbers[0],
		Pace:   time.Duration(numbers[1]) * time.Microsecond,
		Seed:   numbers[2],
		Stamp:  string(fields[3]) == "true",
		Ragged: string(fields[4]) == "true",
	}, nil
}

// modelOf returns the model that a request body names, "" if it names none.
func modelOf(body []byte) string {
	_, rest, found := bytes.Cut(body, []byte(`"model":"`))
	if !found {
		return ""
	}
	name, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(name)
}

// requestBody returns a chat request for the script, with padding bytes of
// prompt before it.
func requestBody(s script, padding int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"model":"%s",`, publicModel)
	if s.Tokens > 0 {
		b.WriteString(`"stream":true,"stream_options":{"include_usage":true},`)
	}
	b.WriteString(`"temperature":0.7,"max_tokens":512,"messages":[{"role":"system","content":"You are a helpful assistant. Answer in one short paragraph."},{"role":"user","content":"`)
	for b.Len() < padding {
		b.WriteString("Das ist ein längerer Prompt. ")
	}
	b.WriteString(s.String())
	b.WriteString(`"}]}`)
	return b.Bytes()
}

// completionText makes the whole answer about 1 KB long.
var completionText = string(bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog. "), 16))

// appendCompletion appends the whole answer of the model.
func appendCompletion(b []byte, model string) []byte {
	b = append(b, `{"id":"chatcmpl-bench","object":"chat.completion","created":1700000000,"model":"`...)
	b = append(b, model...)
	b = append(b, `","choices":[{"index":0,"message":{"role":"assistant","content":"`...)
	b = append(b, completionText...)
	return append(b, `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":31,"completion_tokens":160,"total_tokens":191}}`...)
}

// texts are what events say: plain, with runes of two to four bytes, and with
// escapes.
var texts = []string{
	"token", " of", " text", " Grüße", " 模型", " 🦊", `\n`, ` \"quoted\"`, " ", " é", " and", ` \\path`, " 完成", "’s", " the", " answer",
}

// textAt returns the text of event i of the seed.
func textAt(seed, i int) string {
	h := uint32(seed)*2654435761 + uint32(i)*40503
	return texts[(h>>7)%uint32(len(texts))]
}

// stampMark precedes the time of sending in an event, in nanoseconds.
const stampMark = `{"content":"@`

// appendEvent appends event i of a stream: 0 is the role, then Tokens texts,
// then the finish, the usage and the end. It returns false after the last one.
func (s script) appendEvent(b []byte, model string, i int) ([]byte, bool) {
	switch {
	case i == 0:
		return appendChunk(b, model, `{"role":"assistant","content":""}`, "null"), true
	case i <= s.Tokens && s.Stamp:
		// The same length for every time.
		return appendChunk(b, model, fmt.Sprintf(`%s%019d"}`, stampMark, monotonic()), "null"), true
	case i <= s.Tokens:
		return appendChunk(b, model, `{"content":"`+textAt(s.Seed, i)+`"}`, "null"), true
	case i == s.Tokens+1:
		return appendChunk(b, model, `{}`, `"stop"`), true
	case i == s.Tokens+2:
		b = append(b, `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"`...)
		b = append(b, model...)
		return append(b, `","choices":[],"usage":{"prompt_tokens":31,"completion_tokens":160,"total_tokens":191}}`+"\n\n"...), true
	case i == s.Tokens+3:
		return append(b, "data: [DONE]\n\n"...), true
	}
	return b, false
}

func appendChunk(b []byte, model, delta, finish string) []byte {
	b = append(b, `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1700000000,"model":"`...)
	b = append(b, model...)
	b = append(b, `","choices":[{"index":0,"delta":`...)
	b = append(b, delta...)
	b = append(b, `,"finish_reason":`...)
	b = append(b, finish...)
	return append(b, "}]}\n\n"...)
}

// appendStream appends all events, as a client of the public name must see them.
func (s script) appendStream(b []byte) []byte {
	for i := 0; ; i++ {
		var more bool
		if b, more = s.appendEvent(b, publicModel, i); !more {
			return b
		}
	}
}

// stampOf returns the time of sending that a line of a stream holds.
func stampOf(line []byte) (int64, bool) {
	_, rest, found := bytes.Cut(line, []byte(stampMark))
	if !found || len(rest) < 19 {
		return 0, false
	}
	ns, err := strconv.ParseInt(string(rest[:19]), 10, 64)
	return ns, err == nil
}
