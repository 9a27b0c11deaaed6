package tokens

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tiktoken-go/tokenizer/codec"
)

func TestTextTokens(t *testing.T) {
	tests := []struct {
		text string
		want int
	}{
		{"", 0},
		{"hello world", 2},
		{"The quick brown fox jumps over the lazy dog.", 10},
		{strings.Repeat(" hello", 600), 600},
	}
	c := NewCounter()
	for _, tt := range tests {
		for range 2 { // the second time from memory
			if got := c.Text(testKey, tt.text); got != tt.want {
				t.Errorf("Text(%.20q…) is %d, want %d", tt.text, got, tt.want)
			}
		}
	}
}

// Words are split every 4 KiB, but runes are not.
func TestTextIsCutAtRunes(t *testing.T) {
	text := "a" + strings.Repeat("你好", 4000)
	whole, err := codec.NewO200kBase().Count(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := NewCounter().Text(testKey, text); got < whole || got > whole+len(text)/countPiece+1 {
		t.Errorf("%d tokens in pieces, %d in one", got, whole)
	}
}

// Counting takes time in proportion to the size of the text, for any text.
func TestCountingIsBounded(t *testing.T) {
	for name, unit := range map[string]string{
		"letters": "a", "spaces": " ", "signs": "=-", "broken": "\xff\xfe",
		"mixed": "aB9 ", "lines": " \n", "tabs": "\v\n",
	} {
		text := strings.Repeat(unit, 32<<10/len(unit))
		start := time.Now()
		n := NewCounter().Text(testKey, text)
		// 15 ms, but for the race detector and other tests; without a bound, many minutes
		if d := time.Since(start); d > time.Minute {
			t.Errorf("%s: counted in %v", name, d)
		}
		if n < len(text)/256 || n > len(text) {
			t.Errorf("%s: %d bytes are %d tokens", name, len(text), n)
		}
	}
}

func TestTextBeyondTheLimitIsExtrapolated(t *testing.T) {
	words := strings.Repeat(" hello", 5<<20/6)
	p := promptOf(t, []map[string]any{{"role": "user", "content": words}}, nil)
	got, want := NewCounter().Estimate(testKey, p).Tokens, 5<<20/6
	if d := got - want; d < -want/100 || d > want/100 {
		t.Errorf("%d tokens, want %d within 1 %%", got, want)
	}
}

// promptOf returns a prompt of Go values.
func promptOf(t *testing.T, messages, tools any) *Prompt {
	t.Helper()
	m, err := json.Marshal(messages)
	if err != nil {
		t.Fatal(err)
	}
	var tl []byte
	if tools != nil {
		if tl, err = json.Marshal(tools); err != nil {
			t.Fatal(err)
		}
	}
	return promptFrom(m, tl)
}

// promptFrom returns a prompt of JSON.
func promptFrom(messages, tools []byte) *Prompt {
	return NewPrompt(func() ([]byte, []byte) { return messages, tools })
}

func TestEstimate(t *testing.T) {
	const hello = `"hello world"` // 2 tokens; a role is 1
	tests := []struct {
		name            string
		messages, tools string
		want            Estimate
	}{
		{"nothing", `[]`, ``, Estimate{Tokens: 3}},
		{"no array", `{}`, `null`, Estimate{Tokens: 3}},
		{"text", `[{"role":"user","content":` + hello + `}]`, ``, Estimate{Tokens: 3 + 4 + 1 + 2}},
		{
			"parts", `[{"role":"user","content":[{"type":"text","text":` + hello + `},{"type":"text","text":` + hello + `}]}]`,
			``,
			Estimate{Tokens: 3 + 4 + 1 + 4},
		},
		{
			"call and result", `[{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function",` +
				`"function":{"name":"hello","arguments":"hello world"}}]},` +
				`{"role":"tool","tool_call_id":"c","content":` + hello + `}]`,
			``,
			Estimate{Tokens: 3 + (4 + 1 + 4 + 1 + 2) + (4 + 1 + 2)},
		},
		{"tools", `[]`, `["hello"]`, Estimate{Tokens: 3 + 40 + 8 + 3, Tools: true}},
		{"empty tools", `[]`, `[ ]`, Estimate{Tokens: 3}},
		{
			"image elsewhere", `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://e.com/a.png"}}]}]`,
			``,
			Estimate{Tokens: 3 + 4 + 1 + 1000, Media: true},
		},
		{
			"image as a string", `[{"role":"user","content":[{"type":"image_url","image_url":"https://e.com/a.png"}]}]`, ``,
			Estimate{Tokens: 3 + 4 + 1 + 1000, Media: true},
		},
		{
			"sound", `[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"aaaa"}}]}]`, ``,
			Estimate{Tokens: 3 + 4 + 1 + 1000, Media: true},
		},
		{
			"thinking of the turn that goes on, once",
			`[{"role":"user","content":""},{"role":"assistant","content":"","reasoning_content":` + hello + `,"reasoning":` +
				hello + `}]`,
			``,
			Estimate{Tokens: 3 + 5 + 5 + 2},
		},
		{
			"thinking of a former turn",
			`[{"role":"assistant","content":"","reasoning_content":` + hello + `},{"role":"user","content":""}]`,
			``,
			Estimate{Tokens: 3 + 5 + 5},
		},
		{
			"odd values", `[null,1,{"role":1,"content":null,"tool_calls":{}},{"content":[1,{"text":2,"image_url":3}]}]`, ``,
			Estimate{Tokens: 3 + 4*4 + 1000, Media: true},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := NewCounter().Estimate(testKey, promptFrom([]byte(tt.messages), []byte(tt.tools))); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestTextCacheIsBounded(t *testing.T) {
	c := NewCounter()
	for i := range 3 * cachedTexts {
		c.texts.Add(keyText{hash: uint64(i)}, 1)
	}
	if n := c.texts.Len(); n > cachedTexts {
		t.Errorf("%d texts are remembered", n)
	}
	if _, ok := c.texts.Get(keyText{hash: 3*cachedTexts - 1}); !ok {
		t.Error("the latest text is forgotten")
	}
}

// A text that another key has sent is tokenized again: the time must not reveal it.
func TestKeysShareNoTexts(t *testing.T) {
	c := NewCounter()
	ended, cancel := context.WithCancel(t.Context())
	cancel() // only a cached text is counted
	for _, size := range []int{cachedText, 100 << 10} {
		text := strings.Repeat("word ", size)[:size]
		c.Text(testKey, text)
		if _, cached := c.text(ended, testKey, text); !cached {
			t.Errorf("%d bytes: the key's own text is counted again", size)
		}
		if _, cached := c.text(ended, "key_2", text); cached {
			t.Errorf("%d bytes: another key's text is known", size)
		}
	}
}

func TestTokenCounterIsSafeForConcurrentUse(t *testing.T) {
	c := NewCounter()
	text := strings.Repeat("hello world ", 40)
	want, _ := tokenise(t.Context(), text)
	var g sync.WaitGroup
	for range 8 {
		g.Go(func() {
			for range 50 {
				if got := c.Text(testKey, text); got != want {
					t.Errorf("%d tokens, want %d", got, want)
				}
			}
		})
	}
	g.Wait()
}

// FuzzEstimate counts whatever a client may send.
func FuzzEstimate(f *testing.F) {
	f.Add([]byte(`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,`+
		`iVBORw0KGgo="}}]}]`), []byte(`[{"type":"function"}]`))
	f.Add([]byte(`[{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}]`), []byte(`[`))
	f.Add([]byte(`[{"content":"\ud800\u0000`), []byte{})
	for _, odd := range []string{`[[0]]`, `[{"content":[[0]]}]`, `[{"tool_calls":[[0]]}]`} {
		f.Add([]byte(odd), []byte(odd))
	}
	c := NewCounter()
	f.Fuzz(func(t *testing.T, messages, tools []byte) {
		if !json.Valid(messages) || len(tools) > 0 && !json.Valid(tools) {
			return
		}
		p := promptFrom(messages, tools)
		if n := c.Estimate(testKey, p).Tokens; n < 0 || n > 100*(len(messages)+len(tools)+100) {
			t.Errorf("%d tokens", n)
		}
	})
}

// Clients and model servers may send anything in place of a message, a part or a call.
func TestOddPromptsAreCounted(t *testing.T) {
	c, text := NewCounter(), `{"role":"user","content":"hello world"}`
	for _, odd := range []string{`null`, `true`, `0`, `"text"`, `""`, `[]`, `[0]`, `[[0]]`, `["content"]`, `{}`} {
		for _, messages := range []string{
			odd, `[` + odd + `]`,
			`[{"role":"user","content":` + odd + `}]`, `[{"role":"user","content":[` + odd + `]}]`,
			`[{"role":"user","content":[{"type":"text","text":` + odd + `}]}]`,
			`[{"role":"user","content":[{"type":"image_url","image_url":` + odd + `}]}]`,
			`[{"role":"user","content":[{"type":"image_url","image_url":{"url":` + odd + `}}]}]`,
			`[{"role":"assistant","tool_calls":` + odd + `}]`, `[{"role":"assistant","tool_calls":[` + odd + `]}]`,
			`[{"role":"assistant","tool_calls":[{"function":` + odd + `}]}]`,
			`[{"role":"assistant","tool_calls":[{"function":{"arguments":` + odd + `}}]}]`,
			`[{"role":` + odd + `,"reasoning":` + odd + `}]`,
		} {
			c.Estimate(testKey, promptFrom([]byte(messages), []byte(odd)))
		}
		beside := c.Estimate(testKey, promptFrom([]byte(`[`+odd+`,`+text+`]`), nil)).Tokens
		if alone := c.Estimate(testKey, promptFrom([]byte(`[{},`+text+`]`), nil)).Tokens; beside != alone {
			t.Errorf("beside %s the message counts %d tokens, beside {} %d", odd, beside, alone)
		}
	}
}
