package play

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestScriptSurvivesThePrompt(t *testing.T) {
	for _, want := range []Script{
		{},
		{Tokens: 150, Pace: 20 * time.Millisecond, Stamp: true},
		{ID: 9999, Tokens: 9, Pace: 300 * time.Microsecond},
		{ID: 1 << 40, Tokens: 4, Pace: 20 * time.Millisecond, First: time.Second, Bulk: 9, Tool: true, End: Dies},
		{ID: 3, End: Fails},
	} {
		if got, err := Find([]byte(`{"prompt":"` + Script{ID: 7}.String() + " and then " + want.String() +
			`"}`)); err != nil || got != want {
			t.Errorf("%v came back as %v, %v", want, got, err)
		}
	}
	for _, body := range []string{
		"", "play:", "play:1,2,3:", "play:1,2,3,4,5,x,0:", "play:-1,2,3,4,5,0,0:",
		"play:1,2,3,4,5,0,0", "play:1,2,3,4,5,0,3:", "play:1,2,3,4,99999999,0,0:", "play:1,2,3,4,5,0,0,0:",
	} {
		if s, err := Find([]byte(body)); err == nil {
			t.Errorf("%q is accepted as %v", body, s)
		}
	}
}

// text returns the text and the arguments in a message or a delta.
func text(t *testing.T, object string) string {
	t.Helper()
	type message struct {
		Content string
		Calls   []struct{ Function struct{ Arguments string } } `json:"tool_calls"`
	}
	var o struct {
		Choices []struct{ Message, Delta message }
	}
	if err := json.Unmarshal([]byte(object), &o); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	all := ""
	for _, c := range o.Choices {
		for _, m := range []message{c.Message, c.Delta} {
			all += m.Content
			for _, call := range m.Calls {
				all += call.Function.Arguments
			}
		}
	}
	return all
}

// However an answer is written, it is that of the script.
func TestServerPlays(t *testing.T) {
	r, w := io.Pipe()
	go func() { _ = Serve(t.Context(), "127.0.0.1:0", w) }()
	var address [64]byte
	n, err := r.Read(address[:])
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + strings.TrimSpace(string(address[:n]))
	for _, s := range []Script{
		{Tokens: 1, Bulk: 720},
		{ID: 5, Tokens: 200},
		{ID: 6, Tokens: 300, Tool: true},
		{ID: 7, Tokens: 200, Pace: 100 * time.Microsecond},
	} {
		want := s.Text()
		if s.Tool {
			want = s.Arguments()
		}
		if !utf8.ValidString(want) {
			t.Errorf("script %v has invalid runes", s)
		}
		for _, streamed := range []string{"", `"stream":true,"stream_options":{"include_usage":true},`} {
			resp, err := http.Post(url+"/v1/chat/completions", "application/json",
				strings.NewReader(`{"model":"m",`+streamed+`"prompt":"`+s.String()+`"}`))
			if err != nil {
				t.Fatal(err)
			}
			raw, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			body, got := string(raw), ""
			if streamed == "" {
				if body != string(s.AppendCompletion(nil, "m")) {
					t.Errorf("script %v: the answer is %.200s", s, body)
				}
				got = text(t, body)
			} else {
				if body != string(s.AppendStream(nil, "m")) {
					t.Errorf("script %v: the stream is %.200s", s, body)
				}
				for event := range strings.SplitSeq(strings.TrimSuffix(body, "data: [DONE]\n\n"), "\n\n") {
					if event != "" {
						got += text(t, strings.TrimPrefix(event, "data: "))
					}
				}
			}
			if err != nil || resp.StatusCode != http.StatusOK || got != want {
				t.Errorf("script %v: status %d, %v, %.200q instead of %.200q", s, resp.StatusCode, err, got, want)
			}
		}
	}
}

func TestStamp(t *testing.T) {
	before := Monotonic()
	stream := string(Script{Tokens: 1, Stamp: true}.AppendStream(nil, "m"))
	at, ok := StampOf([]byte(strings.Split(stream, "\n\n")[1]))
	if !ok || at < before || at > Monotonic() {
		t.Errorf("the stamp of %q is %d, %t", stream, at, ok)
	}
	for _, line := range []string{"", "data: [DONE]", `{"content":"@12"}`, `{"content":"@12345678901234x6789"}`} {
		if _, ok := StampOf([]byte(line)); ok {
			t.Errorf("%q has a stamp", line)
		}
	}
}
