package tokens

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// learn learns both the count and the ratio.
func learn(c *Calibration, r Registration, p *Prompt, promptTokens int64) Evidence {
	return c.Learn(r, testConnector, testKey, p, promptTokens, true)
}

// The counts of cut prompts are not learned, and do not change other counts.
func TestCutPromptsAreNotLearned(t *testing.T) {
	c := NewCalibration(NewCounter(), nil)
	estimate := func(p *Prompt) int { return c.counter.Estimate(testKey, p).Tokens }
	ratio := func() float64 { return c.ratio(testRegistration, false).expected() }
	for i := range 5 {
		p := longPrompt(t, i, nil)
		learn(c, testRegistration, p, int64(2*estimate(p)))
	}
	if ratio() < 1.99 {
		t.Fatalf("ratio %v", c.ratio(testRegistration, false))
	}
	long := promptOf(t, []map[string]any{{"role": "user", "content": strings.Repeat("some words ", 4000)}}, nil)
	before := c.Count(t.Context(), testRegistration, testKey, long)
	for _, correct := range []bool{true, false} {
		for i := range 7 {
			e := c.Learn(testRegistration, testConnector, testKey, long, 2050, correct)
			if want := (Evidence{TooLow: estimate(long)}); correct && e != want || !correct && e != (Evidence{}) {
				t.Errorf("evidence %d: %+v", i, e)
			}
		}
		if got := c.Count(t.Context(), testRegistration, testKey, long); got != before || ratio() < 1.99 {
			t.Errorf("counted %d, before %d; ratio %v", got, before, ratio())
		}
	}
	// Texts in another language are learned after a while, and the exact count of a refusal at once.
	for i := range 5 {
		p := longPrompt(t, 10+i, nil)
		if e := learn(c, testRegistration, p, int64(estimate(p))); e != (Evidence{}) || i < 4 && ratio() < 1.99 {
			t.Errorf("text %d: evidence %+v, ratio %v", i, e, ratio())
		}
	}
	if got := ratio(); got > 1.01 {
		t.Errorf("ratio %v", got)
	}
	learn(c, testRegistration, long, 8626)
	if got := c.Count(t.Context(), testRegistration, testKey, long); got != 8626 {
		t.Errorf("counted %d after a refusal", got)
	}
}

// A count below that of the prompt's beginning is not the base of others. Twice in a row is evidence: templates drop
// old thinking once.
func TestShrinkingConversations(t *testing.T) {
	messages := []map[string]any{{"role": "user", "content": strings.Repeat("some words ", 400)}}
	for name, tt := range map[string]struct {
		counts   []int
		evidence []int // indices of counts
	}{
		"grows":                       {[]int{900, 950, 1000, 1050}, nil},
		"twice":                       {[]int{3791, 3598, 3500, 3800}, []int{2}},
		"more than twice":             {[]int{3791, 3598, 3500, 3400}, []int{2, 3}},
		"twice below its largest":     {[]int{3791, 3598, 3600, 3900}, []int{2}},
		"grows in between":            {[]int{3791, 3598, 3800, 3700, 3900}, nil},
		"the same count":              {[]int{2050, 2050, 2050}, []int{2}},
		"the same count of all":       {[]int{100, 100, 100}, nil},
		"only what is not in a cache": {[]int{3791, 20, 15, 12, 10}, nil},
	} {
		c, all := NewCalibration(NewCounter(), nil), messages
		for i, n := range tt.counts {
			e := c.Learn(testRegistration, testConnector, testKey, promptOf(t, all, nil), int64(n), false)
			if e.Shrunk != slices.Contains(tt.evidence, i) {
				t.Errorf("%s: evidence of %d is %+v", name, i, e)
			}
			all = append(all, map[string]any{"role": "assistant", "content": "yes"},
				map[string]any{"role": "user", "content": fmt.Sprint("go on ", i)})
		}
	}
	c := NewCalibration(NewCounter(), nil)
	whole := append(messages, map[string]any{"role": "user", "content": "go"})
	for _, connector := range []string{"con_1", "con_2", "con_3"} { // with other tokenizers
		n := int64(1000 - len(whole))
		if e := c.Learn(testRegistration, connector, testKey, promptOf(t, whole, nil), n, false); e.Shrunk {
			t.Errorf("%s: %+v", connector, e)
		}
		whole = append(whole, map[string]any{"role": "user", "content": "go"})
	}
}

// A prompt surely has its exact count, or most of an estimate that was learned often. Old thinking is no part of it.
func TestCountSurely(t *testing.T) {
	c := NewCalibration(NewCounter(), nil)
	count := func(p *Prompt) (int, int) { return c.CountSurely(t.Context(), testRegistration, testKey, p) }
	p := longPrompt(t, 1, nil)
	estimate := c.counter.Estimate(testKey, p).Tokens
	for i := range 5 {
		if _, sure := count(p); sure != 0 {
			t.Errorf("after %d counts: %d tokens are sure", i, sure)
		}
		learn(c, testRegistration, longPrompt(t, 2+i, nil), int64(estimate))
	}
	if n, sure := count(p); n != estimate || sure != int(float64(estimate)/1.1) {
		t.Errorf("%d tokens, %d are sure", n, sure)
	}
	if _, sure := count(longPrompt(t, 1, oneTool)); sure != 0 {
		t.Errorf("with tools: %d tokens are sure", sure)
	}
	learn(c, testRegistration, p, 777)
	if n, sure := count(p); n != 777 || sure != 777 {
		t.Errorf("exact: %d tokens, %d are sure", n, sure)
	}
	messages := []map[string]any{
		{"role": "user", "content": "hello"},
		{"role": "assistant", "content": "", "reasoning": strings.Repeat("hm ", 5000)},
		{"role": "tool", "content": "yes"},
	}
	learn(c, testRegistration, promptOf(t, messages, nil), 6000)
	messages = append(messages, map[string]any{"role": "user", "content": "and now?"})
	if _, sure := count(promptOf(t, messages, nil)); sure > 100 {
		t.Errorf("%d tokens are sure, although thinking may be dropped", sure)
	}
	for i := range 20 { // of another key, whose prompts have more tokens than their text
		c.Learn(testRegistration, testConnector, "another key", longPrompt(t, 50+i, nil), int64(2*estimate), true)
	}
	if _, sure := count(longPrompt(t, 99, nil)); sure == 0 || sure > estimate {
		t.Errorf("%d tokens of %d are sure after prompts of another key", sure, estimate)
	}
}

// Counting stops when its context is done.
func TestCountEnds(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	counter := NewCounter()
	p := NewPrompt([]byte(`[{"role":"user","content":"`+strings.Repeat("some words ", 1<<20)+`"}]`), nil)
	NewCalibration(counter, nil).Count(ended, testRegistration, testKey, p)
	if counter.texts.Len() > 0 {
		t.Error("a text was counted")
	}
}

// Templates drop thinking with the next message of the user. The counts before that are no evidence.
func TestDroppedThinking(t *testing.T) {
	c, all := NewCalibration(NewCounter(), nil), []map[string]any{{"role": "user", "content": "go"}}
	for i, n := range []int{900, 2900, 3900, 1000, 1050, 2000, 1100} {
		e := c.Learn(testRegistration, testConnector, testKey, promptOf(t, all, nil), int64(n), false)
		if e != (Evidence{}) {
			t.Errorf("evidence of count %d: %+v", i, e)
		}
		role := "tool"
		if i == 2 || i == 3 || i == 5 {
			role = "user"
		}
		all = append(all, map[string]any{"role": "assistant", "content": "yes"},
			map[string]any{"role": role, "content": fmt.Sprint("go on ", i)})
	}
}
