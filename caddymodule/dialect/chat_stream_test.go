package dialect

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/sse"
	"github.com/postern-dev/postern/tests/cut"
	"github.com/postern-dev/postern/tests/rig/odd"
)

// runStream feeds a stream in pieces and ends it.
func runStream(o ChatStreamOptions, cause *Error, pieces ...[]byte) (string, *ChatStream) {
	s := NewChatStream(o)
	var out []byte
	for _, p := range pieces {
		own := slices.Clone(p)
		out = append(out, s.Feed(own)...)
		for i := range own {
			own[i] = '#'
		}
	}
	out = append(out, s.End(cause)...)
	return string(out), s
}

// eventsOf returns a stream of events.
func eventsOf(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		b.WriteString("data: " + d + "\n\n")
	}
	return b.String()
}

// failed returns the error event with a message.
func failed(code, message string) string {
	return eventsOf(`{"error":{"message":"` + message + `","type":"server_error","param":null,"code":"` + code + `"}}`)
}

const (
	broken = "The model server closed the stream before the answer was complete. Try again."

	hi      = `{"id":"c1","choices":[{"index":0,"delta":{"content":"hi"}}],"created":7,"model":"up"}`
	hiPub   = `{"id":"c1","choices":[{"index":0,"delta":{"content":"hi"}}],"created":7,"model":"pub"}`
	stop    = `{"model":"up","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	stopPub = `{"model":"pub","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	costs   = `{"choices":[],"model":"up","usage":{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,` +
		`"prompt_tokens_details":{"cached_tokens":75},"completion_tokens_details":{"reasoning_tokens":3}}}`
	done = "[DONE]"
)

func TestChatStream(t *testing.T) {
	for _, tt := range streamCases {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.Model = "pub"
			in := []byte(tt.in)
			check := func(how, got string, s *ChatStream) {
				t.Helper()
				if got != tt.want {
					t.Errorf("%s\n got %s\nwant %s", how, got, tt.want)
				}
				if (s.Err() != nil) != tt.failed || !s.Done() {
					t.Errorf("%s: error %v, done %v", how, s.Err(), s.Done())
				}
			}
			got, s := runStream(tt.o, nil, in)
			check("whole", got, s)
			got, s = runStream(tt.o, nil, cut.Bytewise(in)...)
			check("byte by byte", got, s)
			for i := range in {
				got, s := runStream(tt.o, nil, in[:i], in[i:])
				check("cut", got, s)
			}
		})
	}
}

func TestChatStreamEndedByACause(t *testing.T) {
	reset := UpstreamReset("pub")
	o := ChatStreamOptions{Model: "pub", Choices: 1}
	tail := "data: " + string(reset.Body(Chat, "")) + "\n"
	for _, tt := range []struct {
		name, in, want string
		o              ChatStreamOptions
	}{
		{"before the first byte", "", tail, o},
		{"in the middle", eventsOf(hi), eventsOf(hiPub) + tail, o},
		{"in the middle of a field's name", eventsOf(hi) + "da", eventsOf(hiPub) + tail, o},
		{"in the middle of an event", eventsOf(hi) + eventsOf(hi)[:20], eventsOf(hiPub) + tail, o},
		{"before an event's empty line", eventsOf(hi) + eventsOf(hi)[:len(eventsOf(hi))-2], eventsOf(hiPub, hiPub) + tail, o},
		{"behind the finish", eventsOf(hi, stop), eventsOf(hiPub, stopPub, done), o},
		{
			"behind the finish of one of two choices", eventsOf(hi, stop), eventsOf(hiPub, stopPub) + tail,
			ChatStreamOptions{Model: "pub", Choices: 2},
		},
		{
			"behind a finish, choices unknown", eventsOf(hi, stop), eventsOf(hiPub, stopPub) + tail,
			ChatStreamOptions{Model: "pub"},
		},
		{"behind [DONE]", eventsOf(hi, stop, done), eventsOf(hiPub, stopPub, done), o},
	} {
		got, s := runStream(tt.o, reset, []byte(tt.in))
		if got != tt.want || !s.Done() || (s.Err() == reset) != strings.HasSuffix(tt.want, tail) {
			t.Errorf("%s: error %v\n got %s\nwant %s", tt.name, s.Err(), got, tt.want)
		}
		if more := string(s.Feed([]byte(eventsOf(hi)))) + string(s.End(nil)); more != "" {
			t.Errorf("%s: %q behind the end", tt.name, more)
		}
	}
}

func TestChatStreamUsageAndProgress(t *testing.T) {
	s := NewChatStream(ChatStreamOptions{Model: "pub", Choices: 1})
	s.Feed([]byte(": ping\n\n: ping\n\ndata\n\n"))
	if _, ok := s.Usage(); ok || s.events != 0 || s.Finished() {
		t.Errorf("comments: %d events, finished %v", s.events, s.Finished())
	}
	s.Feed([]byte(eventsOf(hi, stop)))
	if s.events != 2 || !s.Finished() || s.Done() {
		t.Errorf("%d events, finished %v, done %v", s.events, s.Finished(), s.Done())
	}
	if out := s.Feed([]byte(eventsOf(costs))); len(out) != 0 {
		t.Errorf("usage went out: %s", out)
	}
	want := Usage{PromptTokens: 100, CompletionTokens: 7, CachedTokens: 75, ReasoningTokens: 3}
	if u, ok := s.Usage(); !ok || u != want {
		t.Errorf("usage %+v, %v", u, ok)
	}
	if out := string(s.Feed([]byte(eventsOf(done)))); out != eventsOf(done) || !s.Done() || s.Err() != nil {
		t.Errorf("end %q, done %v, error %v", out, s.Done(), s.Err())
	}
}

func TestChatStreamTakesLargeEvents(t *testing.T) {
	const size = 17 << 20
	text := strings.Repeat("x", size)
	in := []byte(eventsOf(`{"model":"up","choices":[{"delta":{"content":"`+text+`"}}]}`, stop, done))
	out, s := runStream(ChatStreamOptions{Model: "pub"}, nil, slices.Collect(slices.Chunk(in, 60<<10))...)
	if s.Err() != nil || len(out) != len(in)+2 || !strings.HasSuffix(out, eventsOf(stopPub, done)) {
		t.Errorf("%d of %d bytes, error %v", len(out), len(in), s.Err())
	}
	out, s = runStream(ChatStreamOptions{Model: "pub"}, nil,
		slices.Collect(slices.Chunk(slices.Concat([]byte("data: "), bytes.Repeat([]byte("x"), sse.MaxEvent)), 1<<20))...)
	if s.Err() == nil || !strings.Contains(out, "larger than 32 MiB") {
		t.Errorf("an event without bounds: %v, %.200s", s.Err(), out)
	}
}

func TestChatStreamFreesLargeBuffers(t *testing.T) {
	s := NewChatStream(ChatStreamOptions{Model: "pub"})
	s.Feed([]byte(eventsOf(`{"choices":[{"delta":{"content":"` + strings.Repeat("x", 1<<20) + `"}}]}`)))
	s.Feed([]byte(eventsOf(hi)))
	if cap(s.out) > sse.KeepBuffer {
		t.Errorf("a buffer of %d bytes is kept", cap(s.out))
	}
}

func TestChatStreamBoundsItsState(t *testing.T) {
	s := NewChatStream(ChatStreamOptions{Model: "pub"})
	s.repair = true
	for i := range 5000 {
		n := string(jsonscan.AppendQuoted(nil, strings.Repeat("i", i%7)+string(rune('a'+i%26))))
		s.Feed([]byte(eventsOf(`{"choices":[{"index":` + string(integerText(i)) +
			`,"delta":{}},{"index":0,"delta":{"tool_calls":[{"index":` + string(integerText(i)) + `,"function":{"name":` + n +
			`}}]}}]}`)))
	}
	if len(s.choices) > maxChoices || len(s.tools.slots) > maxToolSlots {
		t.Errorf("%d choices, %d tool slots", len(s.choices), len(s.tools.slots))
	}
}

func integerText(i int) []byte { b, _ := json.Marshal(i); return b }

func TestChatStreamAllocatesNothing(t *testing.T) {
	s := NewChatStream(ChatStreamOptions{Model: "pub"})
	piece := []byte(eventsOf(hi, `{"model":"up","error":null,"usage":{"prompt_tokens":1},"choices":[{"index":0,`+
		`"delta":{"content":"a\n"}}]}`))
	half := len(piece) / 3
	run := func() {
		s.Feed(piece[:half])
		s.Feed(piece[half:])
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations for two events", n)
	}
}

func FuzzChatStream(f *testing.F) {
	for i, tt := range streamCases {
		f.Add([]byte(tt.in), uint64(i), tt.o.IncludeUsage)
	}
	for _, shape := range odd.Shapes {
		f.Add([]byte(eventsOf(shape, done)), uint64(1), true)
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64, usage bool) {
		o := ChatStreamOptions{Model: "pub", Choices: 1, IncludeUsage: usage, Info: &AnswerInfo{Wanted: true}}
		whole, s := runStream(o, nil, in)
		pieces, _ := runStream(o, nil, cut.Anywhere(in, seed)...)
		if whole != pieces {
			t.Fatalf("whole %q\n  cut %q", whole, pieces)
		}
		checkClientStream(t, whole, s, usage)
	})
}

// checkClientStream checks what all clients depend on.
func checkClientStream(t *testing.T, out string, s *ChatStream, usage bool) {
	t.Helper()
	if !s.Done() {
		t.Fatal("the stream has no end")
	}
	events := strings.Split(strings.TrimSuffix(out, "\n\n"), "\n\n")
	for i, e := range events {
		data, ok := strings.CutPrefix(e, "data: ")
		if !ok || strings.Contains(data, "\n") {
			t.Fatalf("event %d: %q", i, e)
		}
		last := i == len(events)-1
		if data == done && last && s.Err() == nil {
			return
		}
		var chunk map[string]json.RawMessage
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatalf("event %d: %v: %q", i, err, data)
		}
		if _, ok := chunk["error"]; ok != (last && s.Err() != nil) {
			t.Fatalf("event %d of %d, stream's error %v: %q", i, len(events), s.Err(), data)
		}
		if model, ok := chunk["model"]; ok && string(model) != quoted(s.o.Model) {
			t.Fatalf("event %d names the model %s", i, model)
		}
		if _, ok := chunk["usage"]; ok && !usage {
			t.Fatalf("event %d has usage: %q", i, data)
		}
	}
	if s.Err() == nil {
		t.Fatalf("a good end without [DONE]: %q", out)
	}
}
