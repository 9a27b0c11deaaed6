package tokens

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// learn learns both the count and the ratio.
func learn(c *Calibration, r Registration, p *Prompt, promptTokens int) Doubt {
	return c.Learn(r, testConnector, testKey, p, promptTokens, true)
}

// sizeOf returns the size of a key's prompt through the test connector.
func sizeOf(t *testing.T, c *Calibration, p *Prompt) Size {
	t.Helper()
	return c.Sizes(t.Context(), testRegistration, testKey, p, []string{testConnector})[0]
}

func message(role, content string) map[string]any {
	return map[string]any{"role": role, "content": content}
}

// wordsOf returns a text of n tokens.
func wordsOf(n int) string { return strings.Repeat(" word", n) }

// The counts of cut prompts are not learned, and do not change other counts.
func TestCutPromptsAreNotLearned(t *testing.T) {
	c := NewCalibration(NewCounter(), nil)
	long := promptOf(t, []map[string]any{message("user", wordsOf(8000))}, nil)
	before := c.Count(t.Context(), testRegistration, testKey, long)
	for _, exactly := range []bool{true, false} {
		for i := range 7 {
			doubt := c.Learn(testRegistration, testConnector, testKey, long, 2050, exactly)
			if want := map[bool]Doubt{true: Cut}[exactly]; doubt != want {
				t.Errorf("count %d: doubt %v, want %v", i, doubt, want)
			}
			if !exactly {
				c.Learn(testRegistration, testConnector, testKey, long, 1000, exactly)
			}
		}
		if exactly && c.Count(t.Context(), testRegistration, testKey, long) != before {
			t.Errorf("counted %d, before %d", c.Count(t.Context(), testRegistration, testKey, long), before)
		}
	}
	if got := c.ratio(testRegistration, false); got != startRatio {
		t.Errorf("ratio %v", got)
	}
	if learn(c, testRegistration, long, 8626); c.Count(t.Context(), testRegistration, testKey, long) != 8626 {
		t.Error("the exact count of a refusal is not learned")
	}
}

// A count is doubted if it is too low for what follows the known beginning, or for all.
func TestDoubts(t *testing.T) {
	start := []map[string]any{message("user", wordsOf(1000))}
	more := append(start, message("assistant", wordsOf(100)), message("user", wordsOf(300)))
	for _, tt := range []struct {
		name         string
		known, count int
		want         Doubt
	}{
		{"all", 0, 1400, None},
		{"few tokens", 0, 720, None},
		{"less than half", 0, 690, Cut},
		{"continues", 1000, 1400, None},
		{"continues with few tokens", 1000, 1210, None},
		{"old turns are dropped", 1000, 1190, Low},
		{"cut to half", 1000, 514, Low},
		{"only what is not in a cache", 1000, 210, Low},
		{"less than that", 1000, 190, Cut},
	} {
		c := NewCalibration(NewCounter(), nil)
		if tt.known > 0 {
			learn(c, testRegistration, promptOf(t, start, nil), tt.known)
		}
		if got := learn(c, testRegistration, promptOf(t, more, nil), tt.count); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		if got, used := sizeOf(t, c, promptOf(t, more, nil)), tt.want == None; (got.Known == tt.count) != used {
			t.Errorf("%s: size %+v", tt.name, got)
		}
	}
	c := NewCalibration(NewCounter(), nil)
	for n := range 10 { // a server that does not count
		p := promptOf(t, []map[string]any{message("user", wordsOf(50*n))}, nil)
		if got := learn(c, testRegistration, p, 1); got != None {
			t.Errorf("a prompt of %d tokens: %v", 50*n, got)
		}
	}
}

// A count below that of a beginning is noticed without counting the prompt.
func TestShrunkCount(t *testing.T) {
	turns := []map[string]any{message("user", wordsOf(1000)), message("assistant", "yes"), message("user", wordsOf(200))}
	p := promptOf(t, turns, nil)
	for n, want := range map[int]Doubt{700: Low, 1000: None, 1200: None} {
		c := NewCalibration(NewCounter(), nil)
		learn(c, testRegistration, promptOf(t, turns[:1], nil), 1000)
		if got := c.Learn(testRegistration, testConnector, testKey, p, n, false); got != want {
			t.Errorf("a count of %d: %v, want %v", n, got, want)
		}
	}
}

// A beginning is used if it ends with the user's message, or has the last one of the prompt: templates drop older
// thinking. Other connectors, keys and tools have other counts.
func TestUsableBeginnings(t *testing.T) {
	all := []map[string]any{
		message("user", "one"), message("assistant", "yes"), message("tool", "two"), message("assistant", "yes"),
		message("user", "three"), message("assistant", "yes"), message("tool", "four"),
	}
	for _, tt := range []struct {
		counted, messages int
		used              bool
	}{
		{1, 3, true}, {3, 4, true}, {3, 5, false}, {1, 5, true}, {5, 7, true}, {6, 7, true}, {3, 7, false}, {7, 7, true},
	} {
		c := NewCalibration(NewCounter(), nil)
		learn(c, testRegistration, promptOf(t, all[:tt.counted], nil), 777)
		p := promptOf(t, all[:tt.messages], nil)
		sizes := c.Sizes(t.Context(), testRegistration, testKey, p, []string{"con_2", testConnector, "con_3"})
		whole := c.counter.Estimate(testKey, p).Tokens
		if (sizes[1].Known == 777) != tt.used || (sizes[1].Rest == whole) == tt.used {
			t.Errorf("%d of %d messages: %+v", tt.counted, tt.messages, sizes[1])
		}
		if sizes[0] != sizes[2] || sizes[0].Known != 0 || sizes[0].Rest != whole {
			t.Errorf("other connectors: %+v", sizes)
		}
		other := c.Sizes(t.Context(), testRegistration, "key_2", p, []string{testConnector})[0]
		if other != sizes[0] || sizeOf(t, c, promptOf(t, all[:tt.messages], oneTool)).Known != 0 {
			t.Errorf("another key: %+v", other)
		}
	}
}

// The minimum has what each template has, with a tokenizer that needs fewer tokens.
func TestMin(t *testing.T) {
	c := NewCalibration(NewCounter(), nil)
	size := func(m map[string]any, tools any) Size { return sizeOf(t, c, promptOf(t, []map[string]any{m}, tools)) }
	near := func(what string, got, want int) {
		t.Helper()
		if got < want*99/100-4 || got > want*101/100+4 {
			t.Errorf("%s: %d tokens, want %d", what, got, want)
		}
	}
	plain := size(message("user", wordsOf(1000)), nil)
	near("English", plain.Min(), 800)
	near("English, at most", plain.Max(), 1058)
	near("Chinese", size(message("user", strings.Repeat("你好", 1000)), nil).Min(),
		c.counter.Text(testKey, strings.Repeat("你好", 1000))*2/3)
	arguments, _ := json.Marshal(map[string]string{"text": strings.Repeat("a\n\t\"b\"", 300)})
	call := map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{
		"id": "1", "type": "function",
		"function": map[string]any{"name": "write", "arguments": string(arguments)},
	}}}
	near("escapes", size(call, nil).Min(), c.counter.Text(testKey, strings.Repeat("a\n\t\"b\"", 300))*4/5)
	described := map[string]any{"type": "string", "description": wordsOf(50), "pattern": wordsOf(500)}
	tool := map[string]any{"type": "function", "function": map[string]any{
		"name": "look", "description": wordsOf(100),
		"parameters": map[string]any{"type": "object", "properties": map[string]any{"a": described, "b": described}},
	}}
	near("tools", size(message("user", ""), []any{tool}).Min(), 160)
	image := map[string]any{"role": "user", "content": []any{map[string]any{
		"type": "image_url", "image_url": map[string]any{"url": "https://example.com"},
	}}}
	thinking := map[string]any{"role": "assistant", "content": "", "reasoning_content": wordsOf(1000)}
	near("thinking, which some templates drop", size(thinking, nil).Min(), 0)
	near("media", size(image, nil).Min(), 0)
	near("beyond the limit", size(message("user", wordsOf(2*maxCounted/5)), nil).Min(), maxCounted/5*4/5)
}

// Counting stops when its context is done.
func TestCountEnds(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	c := NewCalibration(NewCounter(), nil)
	p := promptFrom(fmt.Appendf(nil, `[{"role":"user","content":"%s"}]`, wordsOf(1<<20)), nil)
	c.Count(ended, testRegistration, testKey, p)
	c.Sizes(ended, testRegistration, testKey, p, []string{testConnector})
	if c.counter.texts.Len() > 0 {
		t.Error("a text was counted")
	}
}

// Templates leave out the thinking in earlier answers, which clients send back within the content.
func TestThinkingInContentIsNotSure(t *testing.T) {
	answer := "<think>" + wordsOf(8000) + "</think> yes"
	p := promptOf(t, []map[string]any{
		message("user", wordsOf(100)), message("assistant", answer), message("user", "go on, without </think>"+wordsOf(100)),
	}, nil)
	c := NewCalibration(NewCounter(), nil)
	if n := sizeOf(t, c, p).Min(); n < 160 || n > 250 {
		t.Errorf("a prompt with thinking has at least %d tokens", n)
	}
	if doubt := learn(c, testRegistration, p, 220); doubt != None {
		t.Errorf("doubt %v about a count without thinking", doubt)
	}
}
