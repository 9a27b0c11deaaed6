package tokens

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
)

var testRegistration = Registration{Account: "default", Deployment: "m", Since: 1}

const (
	testKey       = "key_1"
	testConnector = "con_1"
)

// longPrompt returns a prompt of about 600 estimated tokens, a different one for each n.
func longPrompt(t *testing.T, n int, tools any) *Prompt {
	t.Helper()
	return promptOf(t, []map[string]any{
		{"role": "system", "content": strings.Repeat("some words to fill the prompt ", 100)},
		{"role": "user", "content": fmt.Sprint("question ", n)},
	}, tools)
}

var oneTool = []map[string]any{{
	"type":     "function",
	"function": map[string]any{"name": "look", "parameters": map[string]any{"type": "object"}},
}}

func TestCountBeforeAnythingIsKnown(t *testing.T) {
	c := NewCalibration(NewCounter(), nil)
	p := longPrompt(t, 1, nil)
	want := int(math.Ceil(1.05 * float64(c.counter.Estimate(testKey, p).Tokens)))
	if got := c.Count(t.Context(), testRegistration, testKey, p); got != want {
		t.Errorf("%d tokens, want %d", got, want)
	}
}

func TestCountOfAKnownPromptIsExact(t *testing.T) {
	c := NewCalibration(NewCounter(), nil)
	p := longPrompt(t, 1, nil)
	learn(c, testRegistration, p, 777)
	if got := c.Count(t.Context(), testRegistration, testKey, longPrompt(t, 1, nil)); got != 777 {
		t.Errorf("%d tokens", got)
	}
	learn(c, testRegistration, p, 778) // the server has another template now
	if got := c.Count(t.Context(), testRegistration, testKey, p); got != 778 {
		t.Errorf("%d tokens", got)
	}
	if got := c.Count(t.Context(), testRegistration, testKey, longPrompt(t, 1, oneTool)); got == 778 {
		t.Error("tools are not part of what is compared")
	}
	if got := c.Count(t.Context(), Registration{"default", "other", 1}, testKey, p); got == 778 {
		t.Error("deployments share what is exact")
	}
}

func TestCountGoesOnFromTheLongestKnownBeginning(t *testing.T) {
	c := NewCalibration(NewCounter(), nil)
	messages := []map[string]any{{"role": "user", "content": "hello"}}
	learn(c, testRegistration, promptOf(t, messages, nil), 100)
	messages = append(messages, map[string]any{"role": "assistant", "content": "yes"},
		map[string]any{"role": "user", "content": "go"})
	learn(c, testRegistration, promptOf(t, messages, nil), 200)
	messages = append(messages, map[string]any{"role": "assistant", "content": "yes"},
		map[string]any{"role": "user", "content": "hello world"})
	// Two messages of 4 tokens each, their roles, and three words, times 1.05.
	if got := c.Count(t.Context(), testRegistration, testKey, promptOf(t, messages, nil)); got != 214 {
		t.Errorf("%d tokens, want 200 and 14", got)
	}
}

// Keys share the ratio, but not the counts of prompts.
func TestKeysShareNoCounts(t *testing.T) {
	c := NewCalibration(NewCounter(), nil)
	messages := []map[string]any{
		{"role": "user", "content": strings.Repeat("some words ", 200)},
		{"role": "assistant", "content": "yes"},
	}
	whole := promptOf(t, messages, nil)
	c.Learn(testRegistration, testConnector, testKey, promptOf(t, messages[:1], nil), 7, false)
	c.Learn(testRegistration, testConnector, testKey, whole, 900, false)
	estimate := c.counter.Estimate("key_2", whole).Tokens
	if got, want := c.Count(t.Context(), testRegistration, "key_2",
		whole), int(math.Ceil(startRatio*float64(estimate))); got != want {
		t.Errorf("another key's prompt has %d tokens, want the estimate %d", got, want)
	}
	c.learnRatio(testRegistration, 2*estimate, c.counter.Estimate(testKey, whole))
	if got := c.Count(t.Context(), testRegistration, "key_2", whole); got != 2*estimate {
		t.Errorf("%d tokens with the ratio of another key's request, want %d", got, 2*estimate)
	}
	if got := c.Count(t.Context(), testRegistration, testKey, whole); got != 900 {
		t.Errorf("the key's own prompt has %d tokens", got)
	}
}

func TestRatioIsAWeightedMean(t *testing.T) {
	c := NewCalibration(NewCounter(), nil)
	estimate := c.counter.Estimate(testKey, longPrompt(t, 1, nil)).Tokens
	learn := func(n int, ratio float64, tools any) {
		learn(c, testRegistration, longPrompt(t, n, tools),
			int(math.Round(ratio*float64(c.counter.Estimate(testKey, longPrompt(t, n, tools)).Tokens))))
	}
	ratio := func(tools bool) float64 { return c.ratio(testRegistration, tools) }
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 2/float64(estimate) {
			t.Errorf("%s: ratio %.4f, want %.4f", what, got, want)
		}
	}
	learn(1, 1.2, nil)
	near("the first", ratio(false), 1.2)
	learn(2, 1.3, nil)
	near("the second", ratio(false), 1.2+0.3*0.1)
	near("with tools", ratio(true), startRatio)
	learn(3, 0.8, oneTool)
	near("with tools, the first", ratio(true), 0.8)
	near("without tools, as before", ratio(false), 1.23)
	for n := range 30 {
		learn(10+n, 9, nil)
		learn(10+n, 0.5, oneTool)
	}
	near("clamped above", ratio(false), 2)
	near("clamped below", ratio(true), 0.5)
}

func TestWhatIsNotLearned(t *testing.T) {
	small := promptOf(t, []map[string]any{{"role": "user", "content": "hello"}}, nil)
	media := promptOf(t, []map[string]any{{"role": "user", "content": []any{
		map[string]any{"type": "text", "text": strings.Repeat("words ", 500)},
		map[string]any{"type": "image_url", "image_url": map[string]any{"url": "https://example.com"}},
	}}}, nil)
	c := NewCalibration(NewCounter(), nil)
	for _, tt := range []struct {
		name   string
		p      *Prompt
		tokens int
	}{
		{"a short prompt", small, 20},
		{"an image", media, 1600},
		{"no count", longPrompt(t, 1, nil), 0},
		{"a negative count", longPrompt(t, 1, nil), -4},
		{"an absurd count", longPrompt(t, 1, nil), 1 << 40},
	} {
		learn(c, testRegistration, tt.p, tt.tokens)
		if got := c.ratio(testRegistration, false); got != startRatio {
			t.Errorf("%s was learned: ratio %v", tt.name, got)
		}
	}
	if got := c.Count(t.Context(), testRegistration, testKey, media); got != 1600 {
		t.Errorf("a prompt with an image that was counted is %d tokens", got)
	}
}

func TestRatiosAreResetByRegistration(t *testing.T) {
	c := NewCalibration(NewCounter(), nil)
	p := longPrompt(t, 1, nil)
	before := testRegistration
	learn(c, before, p, 900)
	after := before
	after.Since = 2
	fresh := int(math.Ceil(1.05 * float64(c.counter.Estimate(testKey, p).Tokens)))
	if got := c.Count(t.Context(), after, testKey, p); got != fresh {
		t.Errorf("%d tokens after registering again, want %d", got, fresh)
	}
	learn(c, before, longPrompt(t, 2, nil), 900) // a request that was still running
	if got := c.ratio(after, false); got != startRatio {
		t.Errorf("ratio %v learned from a former registration", got)
	}
	if all := c.Export(); len(all) != 0 {
		t.Errorf("what is over is exported: %v", all)
	}
}

func TestExportAndLoad(t *testing.T) {
	c := NewCalibration(NewCounter(), nil)
	learn(c, testRegistration, longPrompt(t, 1, nil), 900)
	all := c.Export()
	if len(all) != 1 || all[testRegistration].Tools != 0 {
		t.Fatalf("exported %v", all)
	}
	if again := c.Export(); len(again) != 0 {
		t.Errorf("exported a second time: %v", again)
	}
	loads := 0
	next := NewCalibration(c.counter, func(r Registration) (Ratios, bool) {
		loads++
		ratios, ok := all[r]
		return ratios, ok
	})
	p := longPrompt(t, 2, nil)
	want := int(math.Ceil(all[testRegistration].Plain * float64(c.counter.Estimate(testKey, p).Tokens)))
	for range 2 {
		if got := next.Count(t.Context(), testRegistration, testKey, p); got != want {
			t.Errorf("%d tokens, want %d", got, want)
		}
	}
	if loads != 1 {
		t.Errorf("loaded %d times", loads)
	}
	next.Remove("default", "m")
	if len(next.learned) != 0 {
		t.Error("a deployment that is gone is remembered")
	}
}

// Ratios of another program may be invalid.
func TestLoadedRatiosAreClamped(t *testing.T) {
	for loaded, want := range map[float64]float64{9: 2, 0.01: 0.5, -1: startRatio, 0: startRatio, 1.5: 1.5} {
		c := NewCalibration(NewCounter(), func(Registration) (Ratios, bool) {
			return Ratios{loaded, math.NaN()}, true
		})
		if got := c.ratio(testRegistration, false); got != want {
			t.Errorf("loaded %v: ratio %v, want %v", loaded, got, want)
		}
		if got := c.ratio(testRegistration, true); got != startRatio {
			t.Errorf("loaded what is no number: ratio %v", got)
		}
	}
}

func TestExactCountsAreBounded(t *testing.T) {
	c := NewCalibration(NewCounter(), nil)
	for n := range 2*exactPrompts + 10 {
		c.exact.Add(promptSum{7, uint64(n)}, counted{tokens: n})
	}
	if c.exact.Len() > exactPrompts {
		t.Errorf("%d counts are kept", c.exact.Len())
	}
	if c.exact.Contains(promptSum{7, 9}) {
		t.Error("the oldest is kept")
	}
	if n, _ := c.exact.Get(promptSum{7, exactPrompts + 10}); n.tokens != exactPrompts+10 {
		t.Error("a newer one is not kept")
	}
}

func TestCalibrationIsSafeForConcurrentUse(t *testing.T) {
	c := NewCalibration(NewCounter(), nil)
	prompts := []*Prompt{longPrompt(t, 1, nil), longPrompt(t, 2, oneTool), longPrompt(t, 3, nil)}
	var g sync.WaitGroup
	for i := range 6 {
		g.Go(func() {
			for n := range 50 {
				r := testRegistration
				r.Since = int64(n / 10)
				learn(c, r, prompts[i%3], 700)
				c.Count(t.Context(), r, testKey, prompts[(i+n)%3])
				if n%7 == 0 {
					c.Export()
					c.Remove("default", "m")
				}
			}
		})
	}
	g.Wait()
}

// The latest beginnings of a prompt are kept, and no more of them than a body may cost.
func TestBeginningsAreBounded(t *testing.T) {
	c := NewCalibration(NewCounter(), nil)
	roles := []string{"user", "assistant", "tool"}
	for _, sequence := range []string{"0", "1", "01", "0122222"} {
		var all []map[string]any
		for i := range 5 * maxBeginnings {
			all = append(all, message(roles[sequence[i%len(sequence)]-'0'], fmt.Sprint(i)))
		}
		known := len(all) - 1 - maxBeginnings/2
		for sequence != "1" && all[known-1]["role"] != "user" {
			known--
		}
		learn(c, testRegistration, promptOf(t, all[:known], nil), 12345)
		p := promptOf(t, all, nil)
		if n, from, _ := c.beginning(p, owner(testRegistration, testKey), testConnector); n != 12345 || from != known {
			t.Errorf("%s: %d tokens of %d messages are known", sequence, n, from)
		}
		if len(p.beginnings) > 2*maxBeginnings || p.beginnings[len(p.beginnings)-1].messages != len(all) {
			t.Errorf("%s: %d beginnings, the last %+v", sequence, len(p.beginnings), p.beginnings[len(p.beginnings)-1])
		}
	}
}
