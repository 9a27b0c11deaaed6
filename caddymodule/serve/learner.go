package serve

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/memory"
	"github.com/postern-dev/postern/connector/panics"
)

// learner keeps data of completed requests: token counts, which calibrate later
// estimates, and responses that clients can refer to. It lives as long as the open
// store and thus survives a reload.
type learner struct {
	calibration  *tokens.Calibration
	kept         *kept.Store
	signatureKey []byte // of thinking blocks
	sealer       *dialect.Sealer

	store   *store.Store
	logger  *slog.Logger
	samples chan sample
	waiting atomic.Int64 // bytes of requests in samples
	resting time.Time    // estimates are not corrected until then
	tired   atomic.Int64 // prompts are not counted until then, in Unix nanoseconds
	stop    context.CancelFunc
	worker  sync.WaitGroup

	mu       sync.RWMutex
	noEffort map[tokens.Registration]bool // deployments whose models reject reasoning effort
	closed   bool                         // no more samples
}

// sample is a completed request and the tokens of its prompt.
type sample struct {
	of     tokens.Registration
	key    string // the id of the request's key
	call   dialect.Call
	size   int64 // bytes of the request
	tokens int64
	held   memory.Reservation // for the request, until the sample is processed

	counted func(tokens int) // called with the estimated tokens if the upstream did not count them; else nil
}

// Limits of the queue of samples. Samples beyond them are dropped.
const (
	maxSamples     = 256
	maxSampleBytes = 64 << 20
)

// restFactor is the ratio of rest to work. It limits correcting estimates to 1% of a core.
// Recording a count takes about 5 ms per MB, less than decoding the request, and has no rest.
// Correcting takes several times as long.
const restFactor = 100

// countRestFactor limits counting the prompts of requests without usage to 10% of a core.
const countRestFactor = 10

// Calibrations are saved rarely: ratios change a little with each request, and converge.
const (
	saveInterval = 10 * time.Minute
	// minChange is the least relative change of a ratio that is worth a write.
	minChange = 0.01
	// expireInterval is the interval at which kept responses are expired.
	expireInterval = 5 * time.Second
)

// newLearner starts a learner. It must be closed before the store.
func newLearner(st *store.Store, logger *slog.Logger) (*learner, error) {
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
	l := &learner{
		kept:         kept.NewStore(time.Now),
		signatureKey: key,
		sealer:       sealer,
		store:        st,
		logger:       logger,
		samples:      make(chan sample, maxSamples),
		stop:         stop,
		noEffort:     make(map[tokens.Registration]bool),
	}
	l.calibration = tokens.NewCalibration(tokens.NewCounter(), l.load)
	l.worker.Go(func() { l.run(ctx) })
	return l, nil
}

// close stops the worker, and saves the calibrations. It counts what is waiting by size.
func (l *learner) close() {
	l.stop()
	l.worker.Wait()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	for len(l.samples) > 0 {
		m := <-l.samples
		l.done(&m)
		if m.counted != nil {
			m.counted(int(m.size / dialect.BytesPerToken))
		}
	}
	l.save(context.Background())
}

// load returns the stored calibration of a registration.
func (l *learner) load(r tokens.Registration) (tokens.Ratios, bool) {
	c, ok := l.store.Calibration(r.Account, r.Deployment)
	if !ok || c.Since.UnixMilli() != r.Since {
		return tokens.Ratios{}, false
	}
	return tokens.Ratios{Plain: c.Plain, Tools: c.Tools}, true
}

// onChange drops the data of a removed deployment. It also resets noEffort of a
// changed one.
func (l *learner) onChange(c store.Change) {
	if c.Removed {
		l.calibration.Remove(c.Account, c.ID)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.noEffort, func(of tokens.Registration, _ bool) bool {
		return of.Account == c.Account && of.Deployment == c.ID
	})
}

// learnNoEffort records that the deployment's model rejects reasoning effort, until
// the deployment changes.
func (l *learner) learnNoEffort(of tokens.Registration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noEffort[of] = true
}

// refusesEffort reports whether the request's model rejects reasoning effort.
func (l *learner) refusesEffort(of tokens.Registration) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.noEffort[of]
}

// count counts the tokens of a prompt later, and then calls counted. It reports false if
// there is too much to count; counted is not called then.
func (l *learner) count(m sample, counted func(tokens int)) bool {
	m.counted = counted
	return time.Now().UnixNano() >= l.tired.Load() && l.learn(m)
}

// learn enqueues a sample. It reports false if the sample is dropped, because the queue is
// full or its memory cannot be reserved.
func (l *learner) learn(m sample) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.waiting.Add(m.size) <= maxSampleBytes && m.held.Set(translatedCost*m.size) == nil && !l.closed {
		select {
		case l.samples <- m:
			return true
		default:
		}
	}
	l.done(&m)
	return false
}

// run processes samples and saves calibrations until ctx is done.
func (l *learner) run(ctx context.Context) {
	expire, save := time.NewTicker(expireInterval), time.NewTicker(saveInterval)
	defer expire.Stop()
	defer save.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-l.samples:
			l.process(m)
		case <-expire.C:
			l.kept.Expire()
		case <-save.C:
			l.save(ctx)
		}
	}
}

// process processes a sample.
func (l *learner) process(m sample) {
	defer panics.Recover(l.logger, "learning from a request")
	if m.counted != nil {
		l.estimate(m)
	} else {
		l.remember(m)
	}
}

// estimate counts the prompt of a sample.
func (l *learner) estimate(m sample) {
	begun, n := time.Now(), int(m.size/dialect.BytesPerToken)
	defer func() { // after a panic, the size determines the tokens
		now := time.Now()
		l.tired.Store(now.Add(countRestFactor * now.Sub(begun)).UnixNano())
		l.done(&m)
		m.counted(n)
	}()
	if p := m.call.Prompt(); p != nil {
		n = l.calibration.Count(context.Background(), m.of, m.key, p)
	}
}

// remember records the token count of a sample. It corrects estimates by its prompt
// too, unless the learner rests from that.
func (l *learner) remember(m sample) {
	defer l.done(&m)
	p := m.call.Prompt()
	if p == nil {
		return
	}
	l.calibration.LearnCount(m.of, m.key, p, m.tokens)
	begun := time.Now()
	if begun.Before(l.resting) {
		return
	}
	defer func() { // after a panic, too
		now := time.Now()
		l.resting = now.Add(restFactor * now.Sub(begun))
	}()
	l.calibration.LearnRatio(m.of, m.key, p, m.tokens)
}

// done releases the sample's memory.
func (l *learner) done(m *sample) {
	l.waiting.Add(-m.size)
	m.held.Release()
}

// save saves the calibrations that have changed enough.
func (l *learner) save(ctx context.Context) {
	for r, ratios := range l.calibration.Export() {
		if saved, ok := l.load(r); ok && near(ratios.Plain, saved.Plain) && near(ratios.Tools, saved.Tools) {
			continue
		}
		err := l.store.SaveCalibration(ctx, store.Calibration{
			Account: r.Account, Deployment: r.Deployment, Since: time.UnixMilli(r.Since).UTC(),
			Plain: ratios.Plain, Tools: ratios.Tools,
		})
		if err != nil && ctx.Err() == nil {
			l.logger.Warn("failed to save token calibration", "deployment", r.Deployment, "error", err)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= minChange*b }

// registration returns the current registration of a deployment.
func registration(d store.Deployment) tokens.Registration {
	return tokens.Registration{Account: d.Account, Deployment: d.Name, Since: d.UpdatedAt.UnixMilli()}
}
