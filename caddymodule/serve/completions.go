package serve

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/observed"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/memory"
	"github.com/postern-dev/postern/connector/panics"
)

// completions keeps data of completed requests: token counts, which calibrate later
// estimates, and responses that clients can refer to. It lives as long as the open
// store and thus survives a reload.
type completions struct {
	calibration  *tokens.Calibration
	kept         *kept.Store
	signatureKey []byte // of thinking blocks
	sealer       *dialect.Sealer

	store                *store.Store
	observed             *observed.Table
	logger               *slog.Logger
	counting, correcting tokenizing
	stop                 context.CancelFunc
	worker               sync.WaitGroup
}

// tokenizing is work on the text of prompts, one at a time.
type tokenizing struct {
	sync.Mutex // held while it runs, and after the end
	ended      time.Time
	took       time.Duration
}

// sample is a completed request and the tokens of its prompt.
type sample struct {
	registration tokens.Registration
	key          string // the id of the request's key
	call         dialect.Call
	size         int64              // bytes of the request
	tokens       int64              // 0: the upstream did not count them
	connector    string             // that served the request
	refused      bool               // the count is that of a refusal
	memory       memory.Reservation // for the request, while its prompt is tokenized

	// counted is called with the tokens, which are estimated if the upstream did not count them. It may be nil.
	counted func(tokens int, doubt tokens.Doubt)
}

// These ratios of rest to work limit correcting estimates to 1% of a core, and counting the prompts of requests without
// usage, and of those that a model server may have cut, to 10%.
const restFactor, countRestFactor = 100, 10

// Calibrations are saved rarely: ratios change a little with each request, and converge.
const (
	saveInterval = 10 * time.Minute
	// minChange is the relative change of a ratio from which it is saved.
	minChange = 0.01
	// expireInterval is the interval at which kept responses are expired.
	expireInterval = 5 * time.Second
)

// newCompletions starts completions. They must be closed before the store.
func newCompletions(st *store.Store, table *observed.Table, logger *slog.Logger) (*completions, error) {
	key, err := st.Secret(context.Background(), "thinking_signature", func() ([]byte, error) {
		key := make([]byte, 32)
		_, err := rand.Read(key)
		return key, err
	})
	if err != nil {
		return nil, fmt.Errorf("loading the signature key: %w", err)
	}
	sealer, err := dialect.NewSealer(key)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &completions{
		kept:         kept.NewStore(time.Now),
		signatureKey: key,
		sealer:       sealer,
		store:        st,
		observed:     table,
		logger:       logger,
		stop:         stop,
	}
	c.calibration = tokens.NewCalibration(tokens.NewCounter(), c.load)
	c.worker.Go(func() { c.run(ctx) })
	return c, nil
}

// close stops the worker, tokenizes no further prompts, and saves the calibrations.
func (c *completions) close() {
	c.stop()
	c.worker.Wait()
	c.counting.Lock()
	c.correcting.Lock()
	c.save(context.Background())
}

// load returns the stored calibration of a registration.
func (c *completions) load(r tokens.Registration) (tokens.Ratios, bool) {
	saved, ok := c.store.Calibration(r.Account, r.Deployment)
	if !ok || saved.Since.UnixMilli() != r.Since {
		return tokens.Ratios{}, false
	}
	return tokens.Ratios{Plain: saved.Plain, Tools: saved.Tools}, true
}

// onChange drops the data of a removed deployment.
func (c *completions) onChange(change store.Change) {
	if change.Removed {
		c.calibration.Remove(change.Account, change.ID)
	}
}

// count counts the tokens of a prompt in the background, and then calls counted. It reports false if there is too much
// to count; counted is not called then.
func (c *completions) count(m sample, counted func(int, tokens.Doubt)) bool {
	m.counted = counted
	return c.tokenize(m, &c.counting, countRestFactor)
}

// learn records the token count of a sample, and calls counted. In the background, it also finds out whether the model
// server has cut the prompt and corrects estimates, unless that was done shortly before: a record alone reads no text.
func (c *completions) learn(m sample) {
	defer panics.Recover(c.logger, "learning from a request")
	rest := time.Duration(restFactor)
	if m.call.Prompt().Implausible(int(m.tokens)) {
		rest = countRestFactor
	}
	if !c.tokenize(m, &c.correcting, rest) {
		c.remember(&m, false)
	}
}

// tokenize processes a sample in the background. It reports false if another one is processed, if the last one was
// processed shortly before, or without memory.
func (c *completions) tokenize(m sample, t *tokenizing, rest time.Duration) bool {
	if !t.TryLock() {
		return false
	}
	if time.Since(t.ended) < rest*t.took || m.memory.Set(translatedCost*m.size) != nil {
		t.Unlock()
		return false
	}
	go func() {
		defer panics.Recover(c.logger, "learning from a request")
		c.process(m, t)
	}()
	return true
}

// process counts the prompt of a sample.
func (c *completions) process(m sample, t *tokenizing) {
	begun := time.Now()
	defer func() {
		t.ended = time.Now()
		t.took = t.ended.Sub(begun)
		m.memory.Release()
		t.Unlock()
	}()
	if m.tokens == 0 {
		c.estimate(&m)
	} else {
		c.remember(&m, true)
	}
}

// run expires responses and saves calibrations until ctx is done.
func (c *completions) run(ctx context.Context) {
	expire, save := time.NewTicker(expireInterval), time.NewTicker(saveInterval)
	defer expire.Stop()
	defer save.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-expire.C:
			c.kept.Expire()
		case <-save.C:
			c.save(ctx)
		}
	}
}

// estimate counts the prompt of a sample. After a panic, the size determines the tokens.
func (c *completions) estimate(m *sample) {
	n := int(m.size / dialect.BytesPerToken)
	defer func() { m.counted(n, tokens.None) }()
	if p := m.call.Prompt(); p != nil {
		n = c.calibration.Count(context.Background(), m.registration, m.key, p)
	}
}

// remember records the token count of a sample. If exactly is set, it tokenizes the prompt.
func (c *completions) remember(m *sample, exactly bool) {
	doubt := tokens.None
	defer func() { // after a panic, too
		if m.counted != nil {
			m.counted(int(m.tokens), doubt)
		}
	}()
	doubt = c.calibration.Learn(m.registration, m.connector, m.key, m.call.Prompt(), int(m.tokens), exactly)
	if !m.refused {
		c.observed.Counted(m.registration, m.connector, int(m.tokens), doubt)
	}
}

// save saves the calibrations that have changed enough.
func (c *completions) save(ctx context.Context) {
	for r, ratios := range c.calibration.Export() {
		if saved, ok := c.load(r); ok && near(ratios.Plain, saved.Plain) && near(ratios.Tools, saved.Tools) {
			continue
		}
		err := c.store.SaveCalibration(ctx, store.Calibration{
			Account: r.Account, Deployment: r.Deployment, Since: time.UnixMilli(r.Since).UTC(),
			Plain: ratios.Plain, Tools: ratios.Tools,
		})
		if err != nil && ctx.Err() == nil {
			c.logger.Warn("failed to save token calibration", "deployment", r.Deployment, "error", err)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= minChange*b }

// registration returns the current registration of a deployment.
func registration(d store.Deployment) tokens.Registration {
	return tokens.NewRegistration(d.Account, d.Name, d.UpdatedAt)
}
