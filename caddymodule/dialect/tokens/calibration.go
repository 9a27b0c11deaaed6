package tokens

import (
	"context"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// How estimates are calibrated.
const (
	startRatio   = 1.05 // initial value; overestimates rather than underestimates
	minRatio     = 0.5
	maxRatio     = 2.0
	ratioWeight  = 0.3  // weight of the newest ratio in the mean
	minLearned   = 200  // tokens; the overhead of templates distorts the ratio of shorter prompts
	minCut       = 512  // tokens of the smallest prompt whose count is doubted
	exactPrompts = 8192 // whose counts are kept
	// MaxBytesPerToken is the size of the longest tokens of usual text, on average.
	MaxBytesPerToken = 6
	maxPromptTokens  = 1 << 30 // maximum that an upstream may report
)

// Registration identifies a version of a deployment. The calibration of an older version
// does not apply to a newer one.
type Registration struct {
	Account, Deployment string
	Since               int64 // Unix time in milliseconds
}

// NewRegistration returns the registration of a deployment that was last changed at a time.
func NewRegistration(account, deployment string, changed time.Time) Registration {
	return Registration{account, deployment, changed.UnixMilli()}
}

// Ratios are the mean ratios of actual to estimated tokens, for prompts without and with tools. 0 is unknown.
type Ratios struct{ Plain, Tools float64 }

// of returns the ratio for prompts with or without tools.
func (r *Ratios) of(tools bool) *float64 {
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
	exact   *lru.Cache[promptSum, counted]
}

// promptSum identifies the beginning of a prompt of a key to a deployment.
type promptSum struct{ owner, beginning uint64 }

// owner returns the hash of a deployment's version and a key.
func owner(r Registration, key string) uint64 {
	return maphash.Comparable(seed, struct {
		Registration
		key string
	}{r, key})
}

// counted is a model server's count of a prompt.
type counted struct {
	tokens    int
	connector string
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
	exact, _ := lru.New[promptSum, counted](exactPrompts) // no error: the size is positive
	return &Calibration{counter: counter, load: load, learned: make(map[deployment]*learned), exact: exact}
}

// Count returns the estimated number of tokens of a key's prompt. If ctx is done, it returns
// early and the number is too low.
func (c *Calibration) Count(ctx context.Context, r Registration, key string, p *Prompt) int {
	known, from, whole := c.beginning(p, owner(r, key), "")
	if whole {
		return known
	}
	rest := c.counter.tally(ctx, key, p, from).estimate(p)
	return known + int(math.Ceil(c.ratio(r, rest.Tools)*float64(rest.Tokens)))
}

// Sizes returns what is known of the tokens of a key's prompt through each of the connectors. It counts the text once.
// If ctx is done, it returns early and the numbers are too low.
func (c *Calibration) Sizes(ctx context.Context, r Registration, key string, p *Prompt, connectors []string) []Size {
	of, sizes := owner(r, key), make(map[int]Size)
	all := make([]Size, len(connectors))
	for i, connector := range connectors {
		known, from, _ := c.beginning(p, of, connector)
		if _, ok := sizes[from]; !ok {
			sizes[from] = c.size(ctx, key, p, 0, from)
		}
		all[i] = sizes[from]
		all[i].Known = known
	}
	return all
}

// beginning returns the count, through a connector or any, and the number of messages of the longest counted beginning
// of an owner's prompt, and whether that is the whole prompt.
func (c *Calibration) beginning(p *Prompt, owner uint64, connector string) (tokens, messages int, whole bool) {
	for i, b := range slices.Backward(p.beginnings) {
		if n, ok := c.exact.Get(promptSum{owner, b.sum}); ok && (connector == "" || n.connector == connector) {
			return n.tokens, b.messages, i == len(p.beginnings)-1
		}
	}
	return 0, 0, false
}

// ratio returns the ratio by which to multiply an estimate of a prompt with or without tools.
func (c *Calibration) ratio(r Registration, tools bool) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.calibrationOf(r); l != nil && *l.ratios.of(tools) != 0 {
		return *l.ratios.of(tools)
	}
	return startRatio
}

// calibrationOf returns the calibration of a registration, nil if there is a newer registration.
func (c *Calibration) calibrationOf(r Registration) *learned {
	name := deployment{r.Account, r.Deployment}
	l := c.learned[name]
	if l == nil || l.since < r.Since {
		ratios, _ := c.load(r)
		ratios.Plain, ratios.Tools = clampRatio(ratios.Plain), clampRatio(ratios.Tools)
		l = &learned{since: r.Since, ratios: ratios}
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

// Learn records the model server's count of a key's prompt, which it answered through a connector. If exactly is set,
// it finds out whether the server has cut the prompt, and corrects the ratio, which all keys share: that tokenizes the
// prompt, which takes about 2 ms for 100 KB of text. Else it does not read the text. It then notices only a
// count below that of a beginning, and ignores one that may be too low.
func (c *Calibration) Learn(r Registration, connector, key string, p *Prompt, n int, exactly bool) (doubt Doubt) {
	if n <= 0 || n > maxPromptTokens || len(p.beginnings) == 0 {
		return None
	}
	of := owner(r, key)
	known, from, _ := c.beginning(p, of, connector)
	switch {
	case exactly:
		if size := c.size(context.Background(), key, p, known, from); size.Known+size.common >= minCut {
			doubt = size.Doubt(n)
		}
		if doubt == None {
			c.learnRatio(r, n, c.counter.Estimate(key, p))
		}
	case n < known:
		return Low
	case n == known, p.implausible(n):
		return None
	}
	if doubt == None {
		c.exact.Add(promptSum{of, p.beginnings[len(p.beginnings)-1].sum}, counted{n, connector})
	}
	return doubt
}

// learnRatio updates the ratio from a count.
func (c *Calibration) learnRatio(r Registration, n int, estimate Estimate) {
	if estimate.Tokens < minLearned || estimate.Media {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ratio := float64(n) / float64(estimate.Tokens)
	if l := c.calibrationOf(r); l != nil && ratio >= minRatio {
		mean := l.ratios.of(estimate.Tools)
		if *mean != 0 {
			ratio = *mean + ratioWeight*(ratio-*mean)
		}
		*mean, l.changed = clampRatio(ratio), true
	}
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
