package tokens

import (
	"context"
	"math"
	"slices"
	"strconv"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"
)

// How estimates are calibrated.
const (
	startRatio      = 1.05 // initial value; overestimates rather than underestimates
	minRatio        = 0.5
	maxRatio        = 2.0
	ratioWeight     = 0.3     // weight of the newest ratio in the mean
	minLearned      = 200     // tokens; the overhead of templates distorts the ratio of shorter prompts
	exactPrompts    = 8192    // whose counts are kept
	maxPromptTokens = 1 << 30 // maximum that an upstream may report
)

// Registration identifies a version of a deployment. The calibration of an older version
// does not apply to a newer one.
type Registration struct {
	Account, Deployment string
	Since               int64 // Unix time in milliseconds
}

// key returns a unique string for the registration.
func (r Registration) key() string {
	return r.Account + "/" + r.Deployment + "\x00" + strconv.FormatInt(r.Since, 10)
}

// Ratios are the ratios of actual to estimated tokens, for prompts without and with tools.
// 0 means unknown.
type Ratios struct {
	Plain float64 `json:"plain,omitempty"`
	Tools float64 `json:"tools,omitempty"`
}

// ratio returns the ratio for prompts with or without tools.
func (r *Ratios) ratio(tools bool) *float64 {
	if tools {
		return &r.Tools
	}
	return &r.Plain
}

// Calibration counts the tokens of prompts. It multiplies estimates by a ratio that it
// learns from the counts of the deployment's model server. The count is exact for prompts
// and prefixes of the same API key that the server has already counted. Keys do not share counts,
// which would reveal prompts. It is safe for concurrent use.
type Calibration struct {
	counter *Counter
	load    func(Registration) (Ratios, bool)

	mu      sync.Mutex
	learned map[deployment]*learned
	exact   *lru.Cache[promptSum, int] // counts of model servers
}

// deployment identifies a deployment, independent of its version.
type deployment struct{ account, name string }

// learned is the calibration of a deployment's newest registration.
type learned struct {
	since   int64
	ratios  Ratios
	changed bool // since the last Export
}

// NewCalibration returns a calibration. load returns the saved ratios of a registration and
// is called once for each. It may be nil.
func NewCalibration(counter *Counter, load func(Registration) (Ratios, bool)) *Calibration {
	if load == nil {
		load = func(Registration) (Ratios, bool) { return Ratios{}, false }
	}
	exact, _ := lru.New[promptSum, int](exactPrompts) // no error: the size is positive
	return &Calibration{counter: counter, load: load, learned: make(map[deployment]*learned), exact: exact}
}

// Count returns the estimated number of tokens of a key's prompt. If ctx is done, it returns
// early and the number is too low.
func (c *Calibration) Count(ctx context.Context, r Registration, key string, p *Prompt) int {
	known, from := c.longest(p.sums(r.key(), key))
	if from == len(p.Messages) && known > 0 {
		return known
	}
	rest := c.counter.estimateFrom(ctx, key, p, from)
	return known + int(math.Ceil(float64(rest.Tokens)*c.ratio(r, rest.Tools)))
}

// longest returns the tokens and the number of messages of the longest counted prefix of a
// prompt.
func (c *Calibration) longest(sums []promptSum) (tokens, messages int) {
	for i, sum := range slices.Backward(sums) {
		if tokens, ok := c.exact.Get(sum); ok {
			return tokens, i
		}
	}
	return 0, 0
}

// ratio returns the ratio by which to multiply an estimate.
func (c *Calibration) ratio(r Registration, tools bool) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.known(r); l != nil && *l.ratios.ratio(tools) != 0 {
		return *l.ratios.ratio(tools)
	}
	return startRatio
}

// known returns the calibration of a registration, nil if a newer one is known.
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

// clampRatio limits a ratio to its bounds. It returns 0 if the ratio is unknown or invalid.
func clampRatio(ratio float64) float64 {
	if !(ratio > 0) {
		return 0
	}
	return min(max(ratio, minRatio), maxRatio)
}

// Remove drops the calibration of a removed deployment.
func (c *Calibration) Remove(account, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.learned, deployment{account, name})
}

// canLearn reports whether a model server's count of a prompt is plausible.
func canLearn(p *Prompt, promptTokens int64) bool {
	return promptTokens > 0 && promptTokens <= maxPromptTokens && len(p.Messages) > 0
}

// LearnCount records the model server's count of a key's prompt. Its cost is a hash of the
// prompt.
func (c *Calibration) LearnCount(r Registration, key string, p *Prompt, promptTokens int64) {
	if canLearn(p, promptTokens) {
		sums := p.sums(r.key(), key)
		c.exact.Add(sums[len(sums)-1], int(promptTokens))
	}
}

// LearnRatio updates the ratio, which all keys share, from the model server's count of a
// key's prompt. It tokenizes the prompt, which takes about 2 ms for 100 KB of text.
func (c *Calibration) LearnRatio(r Registration, key string, p *Prompt, promptTokens int64) {
	if !canLearn(p, promptTokens) {
		return
	}
	if estimate := c.counter.Estimate(key, p); estimate.Tokens >= minLearned && !estimate.Media {
		c.learnRatio(r, estimate.Tools, float64(promptTokens)/float64(estimate.Tokens))
	}
}

// learnRatio adds a ratio to the mean. The first one replaces the initial value.
func (c *Calibration) learnRatio(r Registration, tools bool, ratio float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.known(r)
	if l == nil {
		return
	}
	mean := l.ratios.ratio(tools)
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
