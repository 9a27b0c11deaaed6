package tokens

import (
	"container/list"
	"context"
	"math"
	"strconv"
	"sync"
)

// How estimates are calibrated.
const (
	startRatio      = 1.05 // before anything is known: better too many tokens than too few
	minRatio        = 0.5
	maxRatio        = 2.0
	ratioWeight     = 0.3 // of the newest ratio in the mean
	minLearned      = 200 // tokens; what templates add blurs the ratio of shorter prompts
	exactPrompts    = 4096
	maxPromptTokens = 1 << 30 // what an upstream may claim
)

// Registration names a deployment as it is registered since a certain time:
// what was learned of a former registration does not hold for this one.
type Registration struct {
	Account, Deployment string
	Since               int64 // Unix time in milliseconds
}

// key is the registration as a string that no other has.
func (r Registration) key() string {
	return r.Account + "/" + r.Deployment + "\x00" + strconv.FormatInt(r.Since, 10)
}

// Ratios are how many tokens a deployment's model makes of one that was
// estimated, for prompts without and with tools; 0 is not yet known.
type Ratios struct {
	Plain float64 `json:"plain,omitempty"`
	Tools float64 `json:"tools,omitempty"`
}

// of is the ratio of one of the two kinds of prompts.
func (r *Ratios) of(tools bool) *float64 {
	if tools {
		return &r.Tools
	}
	return &r.Plain
}

// Calibration counts tokens of prompts for deployments: by estimate times a
// ratio learned from what the deployment's model server has counted itself,
// and exactly where that server has counted the same prompt, or its beginning,
// before. It is safe for concurrent use.
type Calibration struct {
	counter *Counter
	load    func(Registration) (Ratios, bool)

	mu      sync.Mutex
	learned map[deployment]*learned
	exact   map[promptSum]*list.Element
	recent  list.List // of exactCount, the latest first
}

// deployment names a deployment, whenever it was registered.
type deployment struct{ account, name string }

// learned is what was learned of a deployment's newest registration.
type learned struct {
	since   int64
	ratios  Ratios
	changed bool // since the last Export
}

// exactCount is what a model server has counted.
type exactCount struct {
	sum    promptSum
	tokens int
}

// NewCalibration returns a calibration that knows what load gives, which is
// asked once for each registration; nil stands for nothing.
func NewCalibration(counter *Counter, load func(Registration) (Ratios, bool)) *Calibration {
	if load == nil {
		load = func(Registration) (Ratios, bool) { return Ratios{}, false }
	}
	return &Calibration{
		counter: counter, load: load,
		learned: make(map[deployment]*learned),
		exact:   make(map[promptSum]*list.Element),
	}
}

// Count is the number of tokens that the prompt has, as far as is known. When
// ctx ends, so does the counting: the number is too low then.
func (c *Calibration) Count(ctx context.Context, r Registration, p *Prompt) int {
	known, from := c.longest(p.sums(r.key()))
	if from == len(p.Messages) && known > 0 {
		return known
	}
	rest := c.counter.estimateFrom(ctx, p, from)
	return known + int(math.Ceil(float64(rest.Tokens)*c.ratio(r, rest.Tools)))
}

// longest finds the longest beginning of a prompt that was counted: its tokens
// and the number of its messages.
func (c *Calibration) longest(sums []promptSum) (tokens, messages int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(sums) - 1; i >= 0; i-- {
		if e, ok := c.exact[sums[i]]; ok {
			c.recent.MoveToFront(e)
			return e.Value.(exactCount).tokens, i
		}
	}
	return 0, 0
}

// ratio is the ratio to multiply an estimate with.
func (c *Calibration) ratio(r Registration, tools bool) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.known(r); l != nil && *l.ratios.of(tools) != 0 {
		return *l.ratios.of(tools)
	}
	return startRatio
}

// known is what was learned of a registration; nil if it is not the newest.
func (c *Calibration) known(r Registration) *learned {
	name := deployment{r.Account, r.Deployment}
	l := c.learned[name]
	if l == nil || l.since < r.Since {
		ratios, _ := c.load(r)
		l = &learned{since: r.Since, ratios: Ratios{Plain: clampRatio(ratios.Plain), Tools: clampRatio(ratios.Tools)}}
		c.learned[name] = l
	}
	if l.since > r.Since {
		return nil
	}
	return l
}

// clampRatio brings a ratio into its bounds; 0 and what is not a number stay
// unknown.
func clampRatio(ratio float64) float64 {
	if !(ratio > 0) {
		return 0
	}
	return min(max(ratio, minRatio), maxRatio)
}

// Remove forgets a deployment that was removed.
func (c *Calibration) Remove(account, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.learned, deployment{account, name})
}

// canLearn reports whether a count that a model server claims for a prompt can
// be one.
func canLearn(p *Prompt, promptTokens int64) bool {
	return promptTokens > 0 && promptTokens <= maxPromptTokens && len(p.Messages) > 0
}

// LearnCount remembers what the deployment's model server has counted for a
// prompt. It costs a hash of the prompt.
func (c *Calibration) LearnCount(r Registration, p *Prompt, promptTokens int64) {
	if canLearn(p, promptTokens) {
		sums := p.sums(r.key())
		c.learnExactly(sums[len(sums)-1], int(promptTokens))
	}
}

// LearnRatio learns from such a count how to correct estimates of other
// prompts. It tokenises the prompt, which takes some 20 ms for 100 KB of text.
func (c *Calibration) LearnRatio(r Registration, p *Prompt, promptTokens int64) {
	if !canLearn(p, promptTokens) {
		return
	}
	if estimate := c.counter.Estimate(p); estimate.Tokens >= minLearned && !estimate.Media {
		c.learnRatio(r, estimate.Tools, float64(promptTokens)/float64(estimate.Tokens))
	}
}

// learnExactly keeps the count of a whole prompt.
func (c *Calibration) learnExactly(sum promptSum, tokens int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.exact[sum]; ok {
		e.Value = exactCount{sum, tokens}
		c.recent.MoveToFront(e)
		return
	}
	c.exact[sum] = c.recent.PushFront(exactCount{sum, tokens})
	if c.recent.Len() > exactPrompts {
		oldest := c.recent.Remove(c.recent.Back()).(exactCount)
		delete(c.exact, oldest.sum)
	}
}

// learnRatio takes one more ratio into the mean. The first one is the mean:
// the ratio at the start is no measurement.
func (c *Calibration) learnRatio(r Registration, tools bool, ratio float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.known(r)
	if l == nil {
		return
	}
	mean := l.ratios.of(tools)
	before := *mean
	if before != 0 {
		ratio = before + ratioWeight*(ratio-before)
	}
	*mean = clampRatio(ratio)
	l.changed = l.changed || *mean != before
}

// Export returns the ratios that have changed since the last Export.
func (c *Calibration) Export() map[Registration]Ratios {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[Registration]Ratios)
	for name, l := range c.learned {
		if l.changed {
			all[Registration{name.account, name.name, l.since}] = l.ratios
			l.changed = false
		}
	}
	return all
}
