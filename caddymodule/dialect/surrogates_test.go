package dialect

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// deltasOf returns the texts of the deltas in events of messages or responses, each followed by a bar.
func deltasOf(events string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(events, "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var event struct {
			Type  string
			Delta json.RawMessage
		}
		var text string
		var delta struct {
			Text, Thinking string
			JSON           string `json:"partial_json"`
		}
		if json.Unmarshal([]byte(data), &event) != nil || event.Delta == nil {
			continue
		}
		if json.Unmarshal(event.Delta, &text) != nil && json.Unmarshal(event.Delta, &delta) == nil {
			text = delta.Text + delta.Thinking + delta.JSON
		}
		if text != "" {
			b.WriteString(text + "|")
		}
	}
	return b.String()
}

// A surrogate pair that is split over two pieces, as escapes, is one character. Only its first half is
// buffered.
func TestSplitSurrogates(t *testing.T) {
	t.Parallel()
	content := func(s string) string { return `{"content":"` + s + `"}` }
	reason := func(s string) string { return `{"content":"","reasoning_content":"` + s + `","reasoning":"` + s + `"}` }
	refusal := func(s string) string { return `{"refusal":"` + s + `"}` }
	args := func(s string) string {
		return `{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"a","arguments":"` + s + `"}}]}`
	}
	other := `{"tool_calls":[{"index":1,"id":"d","type":"function","function":{"name":"b","arguments":"{}"}}]}`
	for _, c := range []struct {
		name   string
		deltas []string
		want   string // of the deltas
	}{
		{"text", []string{content(`a\ud83d`), content(`\ude00b`), content("c")}, "a|😀b|c|"},
		{"text alone", []string{
			content(`x`), content(`y`), content(`\uD83D`), content(`\uDE00`), content(`\ud83d`),
			content(`\ude01z`),
		}, "x|y|😀|😁z|"},
		{
			"text with nothing between",
			[]string{content(`a\ud83d`), content(``), `{"content":null}`, content(`\ude00b`)},
			"a|😀b|",
		},
		{"text in parts", []string{`{"content":[{"type":"text","text":"a\ud83d"}]}`, content(`\ude00b`)}, "a|😀b|"},
		{"whole pairs", []string{content(`\ud83d\ude00`), content(`\ud83d\ude00\ud83d`), content(`\ude00`)}, "😀|😀|😀|"},
		{"lone halves", []string{
			content(`a\ud83d`), content(`b`), content(`\ude00`), content(`\ud83d`), content(`\ud83d`),
			content(`\ude00`),
		}, "a|\uFFFDb|\uFFFD|\uFFFD|😀|"},
		{"a lone half at the end", []string{content(`a\ud83d`)}, "a|\uFFFD|"},
		{"an escaped backslash", []string{content(`a\\ud83d`), content(`\\\ud83d`), content(`\ude00`)}, `a\ud83d|\|😀|`},
		{"thinking", []string{reason(`a\ud83d`), reason(`\ude00b`)}, "a|😀b|"},
		{"thinking, then text", []string{reason(`a\ud83d`), content(`\ude00b`)}, "a|\uFFFD|\uFFFDb|"},
		{"a refusal", []string{refusal(`a\ud83d`), refusal(`\ude00b`)}, "a|😀b|"},
		{"arguments", []string{args(`{\"x\":\"a\ud83d`), args(`\ude00b\"}`)}, `{"x":"a|😀b"}|`},
		{"arguments of calls by turns", []string{args(`{\"x\":\"a\ud83d`), other, args(`\ude00b\"}`)}, `{"x":"a|😀b"}|{}|`},
		{
			"arguments with escapes of their own",
			[]string{args(`{\"x\":\"a\\ud83d`), args(`\\ude00b\"}`)},
			`{"x":"a\ud83d|\ude00b"}|`,
		},
		{"text, then a call", []string{content(`a\ud83d`), args(`{}`)}, "a|\uFFFD|{}|"},
	} {
		for _, d := range []Dialect{Messages, Responses} {
			var chunks []string
			for _, delta := range c.deltas {
				chunks = append(chunks, `{"choices":[{"index":0,"delta":`+delta+`}]}`)
			}
			upstream := eventsOf(chunks...) + finishChunk("stop") + upstreamDone
			got := deltasOf(translate(newTestStream(d, testCall()), upstream, nil))
			if d == Messages && c.name == "a refusal" {
				got = c.want // it is told at the end
			}
			if got != c.want {
				t.Errorf("%s, %s: %q, want %q", d, c.name, got, c.want)
			}
		}
	}
}

// FuzzHalfPair cuts a text between two characters or escapes, and joins the pieces.
func FuzzHalfPair(f *testing.F) {
	for _, s := range []string{
		`"a\ud83d\ude00b"`, `"\ud83d\ud83d\ude00"`, `"\\ud83d\\\ud83d\ude00"`, `"\ude00\ud83d"`,
		`"é\n\uD83D"`,
	} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, quoted []byte, after uint8) {
		if !jsonscan.Valid(quoted) || quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
			return
		}
		at := 1
		for range after {
			switch rest := quoted[at:]; {
			case len(rest) == 1:
			case rest[0] != '\\':
				_, n := utf8.DecodeRune(rest)
				at += n
			case rest[1] == 'u':
				at += len(`\u0000`)
			default:
				at += len(`\n`)
			}
		}
		var h halfPair
		got := h.unquote(append(bytes.Clone(quoted[:at]), '"')) + h.unquote(append([]byte{'"'}, quoted[at:]...)) + h.rest()
		if want := jsonscan.Unquote(quoted); got != want {
			t.Fatalf("%s, cut at %d: %q, want %q", quoted, at, got, want)
		}
	})
}
