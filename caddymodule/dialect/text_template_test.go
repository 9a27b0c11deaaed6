package dialect

import (
	"strconv"
	"strings"
	"testing"
)

// textReaders are the readers of chunks that use a template. The second result is the
// reader's state.
var textReaders = []func() (Stream, *upstreamStream){
	func() (Stream, *upstreamStream) {
		s := NewChatStream(ChatStreamOptions{Model: "public", Choices: 1})
		return s, &s.upstreamStream
	},
	func() (Stream, *upstreamStream) {
		s := NewChatStream(ChatStreamOptions{Model: "public", IncludeUsage: true, RepairToolIndex: "on"})
		return s, &s.upstreamStream
	},
	func() (Stream, *upstreamStream) {
		s := newTestStream(Messages, testCall(func(r *reply) { r.options.ThinkTags = true }))
		return s, &s.upstreamStream
	},
	func() (Stream, *upstreamStream) {
		s := newTestStream(Responses, testCall(func(r *reply) { r.logprobs = true }))
		return s, &s.upstreamStream
	},
}

// sameWithoutTemplate checks that the readers of a stream send the same with and without
// a template.
func sameWithoutTemplate(t *testing.T, upstream string) {
	t.Helper()
	for i, open := range textReaders {
		s, state := open()
		parsed, without := open()
		without.template.unused = maxUnused
		got, want := translate(s, upstream, nil), translate(parsed, upstream, nil)
		if got != want {
			t.Errorf("reader %d of %q sent\n%s\nwithout a template\n%s", i, upstream, got, want)
		}
		if state.size != without.size {
			t.Errorf("reader %d of %q counted %d bytes, want %d", i, upstream, state.size, without.size)
		}
	}
}

// textChunks are chunks with %s for their text, and whether they are templates.
var textChunks = []struct {
	chunk    string
	template bool
}{
	{`{"choices":[{"index":0,"delta":{"content":%s}}]}`, true},
	{`{"id":"c","created":1,"model":"m","error":null,"usage":null,"choices":[{"finish_reason":null,"logprobs":null,"index":0,"delta":{"role":"assistant","content":%s,"tool_calls":[]}}],"error":null}`, true},
	{`{"choices":[{"index":0,"delta":{"content":null,"reasoning_content":%s}}],"model":"m"}`, true},
	{`{"choices":[{"index":0,"delta":{"thinking":%s}}],"model":"m"}`, true},
	{`{"choices":[{"index":1,"delta":{"reasoning":%s}}]}`, true},
	{"{\"model\":\"m\",\n \"choices\" : [ {\"delta\":{\"content\": %s }} ] } ", true},
	{`{"choices":[{"index":0,"delta":{"cont\u0065nt":%s}}],"model":"m"}`, true},
	{`{"choices":[{"index":0,"delta":{"reasoning":%[1]s,"reasoning_content":%[1]s}}]}`, false},
	{`{"choices":[{"index":0,"delta":{"content":"b","content":%s}}]}`, false},
	{`{"choices":[{"index":0,"delta":{"content":%s,"content":null}}]}`, false},
	{`{"choices":[{"index":0,"delta":{"content":%s,"function_call":{}}}]}`, false},
	{`{"choices":[{"index":99999999999999999999,"delta":{"content":%s}}]}`, false},
	{`{"choices":[{"index":1,"index":null,"delta":{"content":%s}}]}`, false},
	{`{"choices":[{"index":0,"delta":{"content":"b"},"delta":{"content":%s}}]}`, false},
	{`{"choices":[{"index":0,"delta":{"content":%s}},{"index":1,"delta":{}}]}`, false},
	{`{"choices":[],"choices":[{"index":0,"delta":{"content":%s}}]}`, false},
	{`{"choices":[{"index":0,"delta":{"content":%s,"refusal":"no"}}]}`, false},
	{`{"choices":[{"index":0,"delta":{"content":%s,"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}`, false},
	{`{"choices":[{"index":0,"delta":{"content":%s},"finish_reason":"stop"}]}`, false},
	{`{"choices":[{"index":0,"delta":{"content":%s},"finish_reason":""}]}`, false},
	{`{"choices":[{"index":0,"delta":{"content":%s},"text":"t"}]}`, false},
	{`{"choices":[{"index":0,"delta":{"content":%s},"message":{"content":"t"}}]}`, false},
	{`{"choices":[{"index":0,"delta":{"content":%s},"logprobs":{"content":[]}}]}`, false},
	{`{"choices":[{"index":0,"delta":{"content":%s}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`, false},
	{`{"choices":[{"index":0,"delta":{"content":[%s]}}]}`, false},
	{`{"x":"` + strings.Repeat("x", maxTemplate) + `","choices":[{"index":0,"delta":{"content":%s}}]}`, false},
}

func TestTextTemplate(t *testing.T) {
	texts := []string{`"a"`, `""`, `"é \n\"\\ \ud83d\ude00"`, `"<think>b"`, `"</think>c"`, `"` + strings.Repeat("long ", 2000) + `"`}
	bad := []string{
		`null`, `7`, `"a","content":"b"`, `"a"},"finish_reason":"stop","x":{"y":"z"`, `"a\q"`, "\"a\tb\"", `"a`, `a"`, `"`, ``,
		`"a" `, "\"a\"\ndata: ", "\"a\"\v", "\"a\"\u00a0",
	}
	for _, c := range textChunks {
		fill := func(text string) string { return strings.NewReplacer("%s", text, "%[1]s", text).Replace(c.chunk) }
		var template textTemplate
		if got := template.take([]byte(fill(`"x"`))); got != c.template {
			t.Errorf("take(%.200s) is %v", c.chunk, got)
		}
		for _, text := range texts {
			if got := template.match([]byte(fill(text))) != nil; got != c.template {
				t.Errorf("match(%.200s) with the text %.20s is %v", c.chunk, text, got)
			}
			sameWithoutTemplate(t, eventsOf(fill(`"x"`), fill(text), fill(`"y"`))+finishChunk("stop")+eventsOf(fill(text))+upstreamDone)
		}
		for _, text := range bad {
			if template.match([]byte(fill(text))) != nil {
				t.Errorf("match(%.200s) with the text %s is true", c.chunk, text)
			}
			sameWithoutTemplate(t, eventsOf(fill(`"x"`), fill(text), fill(`"y"`))+finishChunk("stop")+upstreamDone)
		}
	}
}

// TestTextTemplatesUnused checks that a stream whose chunks all differ takes few templates,
// and that a match allows for more.
func TestTextTemplatesUnused(t *testing.T) {
	chunk := func(i int) []byte {
		return []byte(`{"id":"` + strconv.Itoa(i) + `","choices":[{"index":0,"delta":{"content":"a"}}]}`)
	}
	var template textTemplate
	taken := 0
	for i := range 100 {
		if template.match(chunk(i)) == nil && template.take(chunk(i)) {
			taken++
		}
	}
	if taken != maxUnused {
		t.Errorf("%d templates were taken, want %d", taken, maxUnused)
	}
	if template.match(chunk(maxUnused-1)) == nil || !template.take(chunk(100)) {
		t.Error("a template was not taken after a match")
	}
}

func FuzzTextTemplate(f *testing.F) {
	for _, c := range textChunks {
		before, after, _ := strings.Cut(c.chunk, "%s")
		f.Add(before, `"a"`, `"b"`, after)
	}
	f.Fuzz(func(t *testing.T, before, first, second, after string) {
		chunk := func(text string) string {
			return strings.NewReplacer("\n", " ", "\r", " ").Replace(before + text + after)
		}
		sameWithoutTemplate(t, eventsOf(chunk(first), chunk(second), chunk(first))+finishChunk("stop")+eventsOf(chunk(second))+upstreamDone)
	})
}
