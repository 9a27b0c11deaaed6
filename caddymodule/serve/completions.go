package serve

import (
	"cmp"
	"context"
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

	store    *store.Store
	observed *observed.Table
	logger   *slog.Logger
	stop     context.CancelFunc
	worker   sync.WaitGroup

	tokenizing sync.Mutex // held while a prompt is tokenized, and after the end
	restsUntil time.Time  // no prompt is tokenized before
}

// sample is a completed request and the tokens of its prompt.
type sample struct {
	registration tokens.Registration
	known        bool   // the deployment still exists
	key          string // the id of the request's key
	call         dialect.Call
	size         int64              // bytes of the request
	tokens       int64              // 0: the upstream did not count them
	connector    string             // that served the request
	refused      bool               // the count is that of a refusal
	memory       memory.Reservation // for the request, while its prompt is tokenized

	// done is called with the tokens, which are estimated if the upstream did not count them. It may be nil if it did.
	done func(tokens int, doubt tokens.Doubt)
}

// restFactor is the ratio of rest to work that limits tokenizing to 2% of a core.
const restFactor = 50

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
	key, err := st.Secret(context.Background(), "thinking_signature", store.RandomKey)
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
	c.tokenizing.Lock()
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

// correctEstimates corrects later estimates by the model server's count of a prompt, and finds out whether the model
// server has cut it. A prompt that was not counted is counted. Both read the text of the prompt in the background,
// unless that was done shortly before: then a count is only recorded, and the size determines the tokens.
func (c *completions) correctEstimates(m sample) {
	defer panics.Recover(c.logger, "learning from a request")
	if !c.tokenize(m) {
		c.evaluate(&m, false)
	}
}

// tokenize evaluates a sample in the background, with its text. It reports false if another one is evaluated, if the
// last one was evaluated shortly before, or without memory.
func (c *completions) tokenize(m sample) bool {
	if !m.known || !c.tokenizing.TryLock() {
		return false
	}
	if time.Now().Before(c.restsUntil) || m.memory.Set(translatedCost*m.size) != nil {
		c.tokenizing.Unlock()
		return false
	}
	go func() {
		defer panics.Recover(c.logger, "learning from a request")
		begun := time.Now()
		defer func() {
			c.restsUntil = time.Now().Add(restFactor * time.Since(begun))
			m.memory.Release()
			c.tokenizing.Unlock()
		}()
		c.evaluate(&m, true)
	}()
	return true
}

// evaluate finds or records the tokens of a sample. If exactly is set, it reads the text of the prompt.
func (c *completions) evaluate(m *sample, exactly bool) {
	n, doubt := cmp.Or(int(m.tokens), int(m.size/dialect.BytesPerToken)), tokens.None
	defer func() { // after a panic, too
		if m.done != nil {
			m.done(n, doubt)
		}
	}()
	if m.tokens == 0 {
		if p := m.call.Prompt(); exactly && p != nil {
			n = c.calibration.Count(context.Background(), m.registration, m.key, p)
		}
		return
	}
	doubt = c.calibration.Learn(m.registration, m.connector, m.key, m.call.Prompt(), n, exactly)
	if !m.refused {
		c.observed.Counted(m.registration, m.connector, n, doubt)
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

// near reports whether a ratio differs too little from the saved one.
func near(ratio, saved float64) bool { return math.Abs(ratio-saved) <= minChange*saved }

// registration returns the current registration of a deployment.
func registration(d store.Deployment) tokens.Registration {
	return tokens.NewRegistration(d.Account, d.Name, d.UpdatedAt)
}
