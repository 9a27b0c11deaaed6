package dialect

import (
	"bytes"
	"cmp"
	"strconv"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Unit is what an operation is metered in beside tokens.
type Unit string

// The units.
const (
	Seconds    Unit = "seconds"    // of audio that was understood
	Characters Unit = "characters" // that were spoken
	Images     Unit = "images"     // that were made
)

// MediaCall is the call of an operation of rerank, audio or images. Model servers differ in its fields and answers, so
// that only the name of the model is changed, and the answer passes as it comes: JSON, events or bytes, by its
// Content-Type and not by what the client asked for.
type MediaCall struct {
	*ChatRequest // of a JSON body
	form         *Form
	unit         Unit
	usage        Usage // that the request determines
}

// media returns the readHead of a media operation that is metered in a unit. "" means in tokens alone.
func media(unit Unit) func(Operation, []byte, *Env) (Head, *Error) {
	return func(op Operation, body []byte, env *Env) (Head, *Error) { return readMediaHead(unit, op, body, env) }
}

// readMediaHead reads the body of a media operation: a form, or JSON. [Voices] has no body, and the model in its query.
func readMediaHead(unit Unit, op Operation, body []byte, env *Env) (Head, *Error) {
	m := &MediaCall{form: env.Form, unit: unit}
	switch {
	case op.Kind == Voices:
		m.ChatRequest = &ChatRequest{kind: op.Kind, answers: 1}
		m.Model = op.ID
	case m.form != nil:
		if err := m.form.finish(body, env.DefaultModel); err != nil {
			return Head{}, err
		}
		m.ChatRequest = &ChatRequest{kind: op.Kind, answers: 1, body: body, remote: m.form.remote}
		m.Model = m.form.name
	default:
		r, err := scanRequest(op, body, env.DefaultModel)
		if err != nil {
			return Head{}, err
		}
		if m.ChatRequest = r; m.unit == Characters {
			m.usage.Amount = float64(utf8.RuneCountInString(jsonscan.String(r.content.Bytes(body))))
		}
	}
	return Head{Model: m.Model, request: m}, nil
}

func (m *MediaCall) decode(o compat.Options) *Error { return m.applyOptions(o) }

// IsForm reports whether the body is a form.
func (m *MediaCall) IsForm() bool { return m.form != nil }

// Body implements Call.
func (m *MediaCall) Body(upstreamModel string) *Segments {
	switch {
	case m.form != nil:
		return m.form.body(m.body, upstreamModel)
	case m.kind == Voices:
		return new(Segments)
	}
	return m.ChatRequest.Body(upstreamModel)
}

// Usage returns the usage without the answer's part.
func (m *MediaCall) Usage() Usage { return m.usage }

// Unit returns what the request is metered in, "" if only in tokens.
func (m *MediaCall) Unit() Unit { return m.unit }

// Answer implements Call.
func (m *MediaCall) Answer(body []byte) ([]byte, Usage, *Error) {
	a := mediaAnswer{unit: m.unit, usage: m.usage}
	if text := bytes.TrimSpace(body); len(text) == 0 || text[0] != '{' { // some servers rank without an object
		if !jsonscan.Valid(text) {
			return nil, a.usage, garbled(body)
		}
		return body, a.usage, nil
	}
	if err := a.read(body, jsonscan.AppendQuoted(nil, m.Model)); err != nil {
		return nil, a.usage, err
	}
	if len(a.edits) == 0 {
		return body, a.usage, nil
	}
	return a.edits.appendTo(nil, body), a.usage, nil
}

// NewStream implements Call.
func (m *MediaCall) NewStream() Stream {
	return &mediaStream{model: jsonscan.AppendQuoted(nil, m.Model), answer: mediaAnswer{unit: m.unit, usage: m.usage}}
}

// mediaAnswer reads the usage of an answer, or of one event after the other.
type mediaAnswer struct {
	edits edits
	unit  Unit
	usage Usage
}

// read reads an object of the answer. It fails if that is an error, or no object.
func (a *mediaAnswer) read(data, model []byte) *Error {
	a.edits = a.edits[:0]
	m := jsonscan.Object(data)
	for m.Next() {
		if isFailure(&m) {
			return fromEvent(data)
		}
		switch raw := m.Raw(); string(m.Name()) {
		case "model":
			if len(a.edits) == maxEdits {
				return overfull("model names")
			}
			a.edits.add(m.Value.Start, m.Value.End, model)
		case "usage":
			a.readUsage(raw)
		case "duration":
			a.amount(Seconds, seconds(raw))
		case "data":
			if jsonscan.IsArray(raw) && a.unit == Images {
				images := 0.0
				for list := jsonscan.Checked(raw); list.Next(); {
					images++
				}
				a.amount(Images, images)
			}
		case "type":
			if string(raw) == `"image"` || bytes.HasSuffix(raw, []byte(`.completed"`)) {
				a.amount(Images, a.usage.Amount+1)
			}
		}
	}
	if !m.Whole() {
		return garbled(data)
	}
	return nil
}

// readUsage reads a usage object, of the format of chat completions or of OpenAI's other APIs.
func (a *mediaAnswer) readUsage(raw []byte) {
	if !jsonscan.IsObject(raw) {
		return
	}
	u, _ := parseUsage(raw)
	input, output := tokenCount(jsonscan.Member(raw, "input_tokens")), tokenCount(jsonscan.Member(raw, "output_tokens"))
	total := tokenCount(jsonscan.Member(raw, "total_tokens"))
	a.usage.PromptTokens = cmp.Or(u.PromptTokens, input, max(total-output-u.CompletionTokens, 0))
	a.usage.CompletionTokens = cmp.Or(u.CompletionTokens, output)
	a.amount(Seconds, seconds(jsonscan.Member(raw, "seconds")))
}

// amount records an amount, if the operation is metered in its unit.
func (a *mediaAnswer) amount(unit Unit, amount float64) {
	if a.unit == unit && amount > a.usage.Amount {
		a.usage.Amount = amount
	}
}

// seconds parses a number of seconds, which vLLM sends as a string. It returns 0 for values that are not plausible.
func seconds(raw []byte) float64 {
	const longest = 366 * 24 * 3600
	if n, err := strconv.ParseFloat(string(bytes.Trim(raw, `"`)), 64); err == nil && n > 0 && n <= longest {
		return n
	}
	return 0
}

// mediaStream passes the events of a media operation. It changes the name of the model in them, and ends with an error
// event if the stream breaks. It adds no pings, because the gateway learns only from the answer that it is a stream.
type mediaStream struct {
	upstreamStream
	eventBuffer
	answer mediaAnswer
	model  []byte // quoted
}

// Ping implements Stream.
func (*mediaStream) Ping() []byte { return nil }

// Feed implements Stream.
func (s *mediaStream) Feed(p []byte) []byte {
	return s.write(func() { s.read(p, s) })
}

// End implements Stream.
func (s *mediaStream) End(cause *Error) []byte {
	return s.write(func() {
		if s.readLast(s, cause != nil); cause != nil {
			s.abort(cause)
		}
		s.ended = true
	})
}

// write runs step and returns its output, with the error that ended the stream.
func (s *mediaStream) write(step func()) []byte {
	if s.ended {
		return nil
	}
	s.clear()
	if step(); s.err != nil {
		s.out = append(append(append(s.out, "data: "...), s.err.Body(Chat, "")...), '\n')
	}
	return s.out
}

// chunk implements chunkReader.
func (s *mediaStream) chunk(data []byte) {
	s.answer.edits = s.answer.edits[:0]
	if jsonscan.IsObject(data) {
		if err := s.answer.read(data, s.model); err != nil {
			s.abort(err)
			return
		}
	}
	if name := s.reader.Name; len(name) > 0 {
		s.out = append(append(append(s.out, "event: "...), name...), '\n')
	}
	s.out = appendEvent(s.out, func(b []byte) []byte { return s.answer.edits.appendTo(b, data) })
}

// done implements chunkReader.
func (s *mediaStream) done() {
	s.out, s.ended = append(s.out, doneEvent...), true
}

// Finished implements Stream.
func (*mediaStream) Finished() bool { return false }

// Usage implements Stream.
func (s *mediaStream) Usage() (Usage, bool) { return s.answer.usage, true }

// Buffered implements Stream.
func (s *mediaStream) Buffered() int64 { return s.reader.Buffered() + int64(cap(s.out)) }
