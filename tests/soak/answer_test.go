package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/upstream/play"
)

func always(int) error { return nil }

// A caseOfStream is a stream and what it says.
type caseOfStream struct {
	stream   string
	want     answer
	symptoms symptom // of what it tells
}

func (c caseOfStream) check(t *testing.T, name string) {
	t.Helper()
	got, err := readStream(strings.NewReader(c.stream), always)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	told := well
	if got.told != nil {
		told = symptomOf(200, got.told)
		got.told = nil
	}
	if told != c.symptoms {
		t.Errorf("%s: what it tells is %q, want %q", name, told, c.symptoms)
	}
	if got != c.want {
		t.Errorf("%s: %+v, want %+v", name, got, c.want)
	}
}

func TestReadStream(t *testing.T) {
	for name, c := range map[string]caseOfStream{
		"chat": {
			stream: `data: {"choices":[{"delta":{"role":"assistant","content":""}}]}` + "\n\n: ping\n\n" +
				`data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n" + `data: {"choices":[{"delta":{"content":"b"}}]}` + "\n\n" +
				`data: {"choices":[],"usage":{}}` + "\n\ndata: [DONE]\n\n",
			want: answer{text: "ab", finished: true, events: 5},
		},
		"chat with a tool": {
			stream: `data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":"{"}}]}}]}` + "\n\n" +
				`data: {"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"}"}}]}}]}` + "\n\ndata: [DONE]\n\n",
			want: answer{arguments: "{}", finished: true, events: 3},
		},
		"chat without an end": {
			stream: `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n",
			want:   answer{text: "a", events: 1},
		},
		"responses": {
			stream: "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"error\":null}}\n\n" +
				`data: {"type":"response.output_text.delta","delta":"a\n"}` + "\n\n" + `data: {"type":"response.function_call_arguments.delta","delta":"{}"}` + "\n\n" +
				`data: {"type":"response.completed","response":{"error":null}}` + "\n\ndata: [DONE]\n\n",
			want: answer{text: "a\n", arguments: "{}", finished: true, events: 5},
		},
		"messages": {
			stream: `data: {"type":"content_block_start","content_block":{"type":"text","text":""}}` + "\n\n" +
				`data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}` + "\n\n" +
				`data: {"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{}"}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n",
			want: answer{text: "a", arguments: "{}", finished: true, events: 4},
		},
	} {
		c.check(t, name)
	}
}

func TestReadStreamThatFails(t *testing.T) {
	for name, c := range map[string]caseOfStream{
		"chat that breaks": {
			stream:   `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n" + `data: {"error":{"message":"m","type":"server_error","code":"upstream_error"}}` + "\n\n",
			want:     answer{text: "a", events: 2},
			symptoms: cut,
		},
		"responses that fail": {
			stream:   `data: {"type":"response.failed","response":{"error":{"code":"invalid_api_key","message":"m"}}}` + "\n\ndata: [DONE]\n\n",
			want:     answer{events: 2},
			symptoms: unauthorized,
		},
		"responses that wait for a connector": {
			stream:   `data: {"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"The model is offline: m"}}}` + "\n\ndata: [DONE]\n\n",
			want:     answer{events: 2},
			symptoms: offline,
		},
		"messages that break": {
			stream:   "event: error\ndata: " + `{"type":"error","error":{"type":"overloaded_error","message":"m"}}` + "\n\n",
			want:     answer{events: 1},
			symptoms: offline,
		},
	} {
		c.check(t, name)
	}
}

func TestReadStreamStops(t *testing.T) {
	stream := strings.Repeat(`data: {"choices":[{"delta":{"content":"a"}}]}`+"\n\n", 5)
	stop := func(events int) error {
		if events == 3 {
			return errLeft
		}
		return nil
	}
	if a, err := readStream(strings.NewReader(stream), stop); !errors.Is(err, errLeft) || a.events != 3 {
		t.Errorf("%d events, %v", a.events, err)
	}
	if _, err := readStream(strings.NewReader("data: {\n\n"), always); !errors.Is(err, errWrong) {
		t.Errorf("an event that is no JSON: %v", err)
	}
	broken := io.MultiReader(strings.NewReader(stream), brokenReader{})
	if a, err := readStream(broken, always); !errors.Is(err, io.ErrUnexpectedEOF) || a.events != 5 {
		t.Errorf("%d events, %v", a.events, err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestReadWhole(t *testing.T) {
	for name, c := range map[string]struct{ body, text, arguments string }{
		"chat":      {`{"choices":[{"message":{"content":"a"}}]}`, "a", ""},
		"chat tool": {`{"choices":[{"message":{"content":null,"tool_calls":[{"function":{"arguments":"{}"}}]}}]}`, "", "{}"},
		"responses": {`{"error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"a"}]},{"type":"function_call","arguments":"{}"}]}`, "a", "{}"},
		"messages":  {`{"type":"message","content":[{"type":"text","text":"a"},{"type":"tool_use","input":{"b":1}}]}`, "a", `{"b":1}`},
	} {
		a, err := readWhole(strings.NewReader(c.body))
		if err != nil || !a.finished || a.text != c.text || a.arguments != c.arguments {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	if _, err := readWhole(strings.NewReader("<html>")); !errors.Is(err, errWrong) {
		t.Errorf("HTML is read as %v", err)
	}
}

func TestVerify(t *testing.T) {
	s := play.Script{ID: 9, Tokens: 3, End: play.Whole}
	right := answer{text: s.Text()}
	if err := right.verify(s); err != nil {
		t.Error(err)
	}
	for _, wrong := range []answer{{}, {text: s.Text() + "x"}, {text: strings.Replace(s.Text(), "w9.1", "w8.1", 1)}, {text: s.Text(), arguments: "{}"}} {
		if wrong.verify(s) == nil {
			t.Errorf("%.40q passes", wrong.text)
		}
	}
	s.Tool = true
	called := answer{arguments: s.Arguments()}
	if err := called.verify(s); err != nil {
		t.Error(err)
	}
	if right.verify(s) == nil {
		t.Error("text passes for a call")
	}
}
