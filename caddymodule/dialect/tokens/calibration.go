package tokens

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// How estimates are calibrated.
const (
	startRatio    = 1.05 // initial value; overestimates rather than underestimates
	minRatio      = 0.5
	maxRatio      = 2.0
	ratioWeight   = 0.3  // weight of the newest ratio in the mean
	minLearned    = 200  // tokens; the overhead of templates distorts the ratio of shorter prompts
	exactPrompts  = 8192 // whose counts are kept
	keptBounds    = 8192
	boundWeight   = 0.05 // weight of a higher ratio in a bound
	cutRatio      = 0.6  // of the expected tokens: the model server has cut a prompt with fewer
	enoughCounts  = 5    // of a key, which make an estimate sure
	estimateError = 1.1  // maximum ratio of a sure estimate to the actual tokens
	// restRatio is the maximum ratio of tokens to the estimate of a few messages.
	restRatio        = 3
	maxBytesPerToken = 6       // of usual text
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

// key returns a unique string for the registration.
func (r Registration) key() string {
	return r.Account + "/" + r.Deployment + "\x00" + strconv.FormatInt(r.Since, 10)
}

// Ratios are the ratios of actual to estimated tokens, for prompts without and with tools.
type Ratios struct{ Plain, Tools Ratio }

// Ratio is a mean ratio. The zero value is unknown.
type Ratio struct {
	Mean float64
	low  int // counts in a row that were too low for it, and were not learned
}

// of returns the ratio for prompts with or without tools.
func (r *Ratios) of(tools bool) *Ratio {
	if tools {
		return &r.Tools
	}
	return &r.Plain
}

// expected returns the ratio by which to multiply an estimate.
func (r Ratio) expected() float64 { return cmp.Or(r.Mean, startRatio) }

// learn adds a ratio to the mean, unless it is so low that the model server may have cut the prompt. Texts in another
// language can have such a ratio, too: several in a row replace the mean.
func (r *Ratio) learn(ratio float64) (ok bool) {
	if ratio < cutRatio*r.expected() {
		if r.low++; r.low < enoughCounts {
			return false
		}
		*r = Ratio{}
	}
	if r.Mean != 0 {
		ratio = r.Mean + ratioWeight*(ratio-r.Mean)
	}
	*r = Ratio{Mean: clampRatio(ratio)}
	return true
}

// prompts are those of a key to a deployment, with or without tools.
type prompts struct {
	Registration
	key   string
	tools bool
}

// bound is the lowest ratio of a key's prompts. It rises slowly. Other keys do not change what is sure of a prompt:
// their prompts can have a higher ratio.
type bound struct {
	ratio  float64
	counts int // that it was learned from
}

// add adds a ratio.
func (b bound) add(ratio float64) bound {
	if b.counts > 0 {
		ratio = min(ratio, b.ratio+boundWeight*(ratio-b.ratio))
	}
	return bound{ratio, b.counts + 1}
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
	bounds  *lru.Cache[prompts, bound]
}

// counted is a model server's count of a prompt.
type counted struct {
	tokens    int
	connector string
	doubted   bool // it is too low for the prompt
	shrunk    int  // how often in a row the count was not above one of the prompt's beginning
	base      int  // the largest count of a beginning that ended with the user's message: it has no old thinking
}

// Evidence is what a count shows of a model server that cuts prompts.
type Evidence struct {
	// TooLow is the estimate of a prompt of which the count is too small a part for any tokenizer; 0: it is not.
	TooLow int
	// Shrunk reports whether twice in a row a prompt had no more tokens than its beginning.
	Shrunk bool
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
	bounds, _ := lru.New[prompts, bound](keptBounds)
	return &Calibration{
		counter: counter, load: load, learned: make(map[deployment]*learned), exact: exact, bounds: bounds,
	}
}

// Count returns the estimated number of tokens of a key's prompt. If ctx is done, it returns
// early and the number is too low.
func (c *Calibration) Count(ctx context.Context, r Registration, key string, p *Prompt) int {
	known, from := c.usable(r, key, p)
	if from == len(p.Messages) && known > 0 {
		return known
	}
	rest := c.counter.estimateFrom(ctx, key, p, from)
	return known + c.ratio(r, rest.Tools).times(rest.Tokens)
}

// CountSurely returns the tokens of a prompt and how many it surely has: all if the count is exact, a part of an
// estimate that prompts of the key have made sure, else 0. Templates drop old thinking, which the count of a beginning
// may include, so the estimate of the whole prompt must agree.
func (c *Calibration) CountSurely(ctx context.Context, r Registration, key string, p *Prompt) (tokens, sure int) {
	known, from := c.usable(r, key, p)
	if from == len(p.Messages) && known > 0 {
		return known, known
	}
	whole := c.counter.estimateFrom(ctx, key, p, 0)
	lowest, _ := c.bounds.Get(prompts{r, key, whole.Tools})
	if lowest.counts < enoughCounts || whole.Media {
		return 0, 0
	}
	rest := c.counter.estimateFrom(ctx, key, p, from)
	tokens = min(known+int(lowest.ratio*float64(rest.Tokens)), int(lowest.ratio*float64(whole.Tokens)))
	return tokens, int(float64(tokens) / estimateError)
}

// usable returns the count and the number of messages of the longest counted prefix of a prompt. Counts of prompts
// that may have been cut are not used.
func (c *Calibration) usable(r Registration, key string, p *Prompt) (tokens, messages int) {
	known, from := c.beginning(p.sums(r.key(), key))
	if known.doubted {
		return 0, 0
	}
	return known.tokens, from
}

// beginning returns the count and the number of messages of the longest counted prefix of a prompt.
func (c *Calibration) beginning(sums []promptSum) (counted, int) {
	for i, sum := range slices.Backward(sums) {
		if n, ok := c.exact.Get(sum); ok {
			return n, i
		}
	}
	return counted{}, 0
}

// ratio returns the ratio for prompts with or without tools.
func (c *Calibration) ratio(r Registration, tools bool) Ratio {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.known(r); l != nil {
		return *l.ratios.of(tools)
	}
	return Ratio{}
}

// times multiplies an estimate by the ratio.
func (r Ratio) times(estimate int) int { return int(math.Ceil(float64(estimate) * r.expected())) }

// known returns the calibration of a registration, nil if a newer one is known.
func (c *Calibration) known(r Registration) *learned {
	name := deployment{r.Account, r.Deployment}
	l := c.learned[name]
	if l == nil || l.since < r.Since {
		ratios, _ := c.load(r)
		ratios.Plain.Mean, ratios.Tools.Mean = clampRatio(ratios.Plain.Mean), clampRatio(ratios.Tools.Mean)
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

// Learn records the model server's count of a key's prompt, which it answered through a connector. If correct is
// set, it also corrects the ratio, which all keys share: that tokenizes the prompt, which takes about 2 ms for 100 KB
// of text. Else its cost is a hash of the prompt.
//
// A count that is not above that of the prompt's beginning is one of a cut prompt, or the template has dropped old
// thinking. Templates do that once, then the counts of the conversation grow again. Turns of equal length can make
// counts of cut prompts equal; so can a server that does not count.
func (c *Calibration) Learn(r Registration, connector, key string, p *Prompt, promptTokens int64, correct bool,
) (e Evidence) {
	if promptTokens <= 0 || promptTokens > maxPromptTokens || len(p.Messages) == 0 {
		return e
	}
	n := counted{tokens: int(promptTokens), connector: connector}
	sums := p.sums(r.key(), key)
	last := len(sums) - 1
	known, from := c.beginning(sums[:last])
	if known.connector != connector { // which may have another tokenizer
		known, from = counted{}, 0
	}
	if before := max(known.tokens, known.base); n.tokens < before || n.tokens == before && !p.implausible(n.tokens) {
		n.shrunk = known.shrunk + 1
		e.Shrunk = n.shrunk > 1
	}
	grown := n.tokens > known.tokens && n.shrunk == 0
	if correct {
		n.doubted, e.TooLow = c.learnRatio(r, key, p, n.tokens, grown)
	} else {
		n.doubted = p.implausible(n.tokens)
	}
	n.doubted = n.doubted || !grown
	if n.base = known.base; p.lastUser == len(p.Messages)-1 {
		n.base = max(n.base, n.tokens)
	}
	c.exact.Add(sums[last], n)
	if from > 0 && e != (Evidence{}) {
		// Some servers count the messages that they have not cached alone.
		rest := float64(c.counter.estimateFrom(context.Background(), key, p, from).Tokens)
		if minRatio*rest <= float64(n.tokens) && float64(n.tokens) <= restRatio*rest {
			return Evidence{}
		}
	}
	return e
}

// learnRatio updates the ratio from a count, unless the model server may have cut the prompt: its count has not grown,
// or is too low for it. If it is too low for any tokenizer, learnRatio also returns the estimate.
func (c *Calibration) learnRatio(r Registration, key string, p *Prompt, n int, grown bool) (low bool, tooLow int) {
	estimate := c.counter.Estimate(key, p)
	if estimate.Tokens < minLearned || estimate.Media {
		return false, 0
	}
	ratio := float64(n) / float64(estimate.Tokens)
	if ratio < minRatio {
		return true, estimate.Tokens
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.known(r); l != nil && grown {
		low = !l.ratios.of(estimate.Tools).learn(ratio)
		l.changed = l.changed || !low
		if kind := (prompts{r, key, estimate.Tools}); !low {
			lowest, _ := c.bounds.Get(kind)
			c.bounds.Add(kind, lowest.add(ratio))
		}
	}
	return low, 0
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
