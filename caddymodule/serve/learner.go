package serve

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/memory"
)

// learner keeps what the gateway remembers of requests that have ended: how many
// tokens they had, to count others by, and the responses that clients may refer
// to. It lives as long as the open store, so that a reload loses nothing.
type learner struct {
	calibration  *tokens.Calibration
	kept         *kept.Store
	signatureKey []byte // of thinking blocks
	sealer       *dialect.Sealer

	store       *store.Store
	logger      *slog.Logger
	samples     chan sample
	corrections chan correction // received when the last one was worked on and rested from
	waiting     atomic.Int64    // bytes of requests in samples and corrections
	resting     atomic.Int64    // until when samples are dropped, in Unix nanoseconds
	unwatch     func()
	memory      *memory.Budget
	stop        context.CancelFunc
	worker      sync.WaitGroup

	mu       sync.RWMutex
	noEffort map[tokens.Registration]bool // of models that know no degrees of thinking
}

// sample is a completed request and the tokens of its prompt.
type sample struct {
	of     tokens.Registration
	call   dialect.Call
	size   int64 // bytes of the request
	tokens int64

	held memory.Reservation // of the request, until the sample was used
}

// correction is a prompt to correct estimates by, and its tokens.
type correction struct {
	of     tokens.Registration
	prompt *tokens.Prompt
	size   int64 // bytes of the request
	tokens int64
	held   memory.Reservation
}

// Bounds of the samples that wait. Under a high load the gateway learns less.
const (
	maxSamples     = 256
	maxSampleBytes = 64 << 20
)

// restFactor is how much longer than its work took the learner rests, so that
// remembering counts and correcting estimates each have a hundredth of one core.
// Remembering costs some 5 ms for 1 MB: at the pace of people and agents each
// request is remembered. Correcting costs a hundred times as much.
const restFactor = 100

// saveInterval is how often what was learned is written to the store.
const saveInterval = 5 * time.Second

// newLearner returns a learner that works until it is closed, which must be
// before the store is.
func newLearner(st *store.Store, budget *memory.Budget, logger *slog.Logger) (*learner, error) {
	ctx, stop := context.WithCancel(context.Background())
	key, err := st.Secret(ctx, "thinking_signature", func() ([]byte, error) {
		key := make([]byte, 32)
		_, err := rand.Read(key)
		return key, err
	})
	if err != nil {
		stop()
		return nil, fmt.Errorf("fetching the key of signatures: %w", err)
	}
	sealer, err := dialect.NewSealer(key)
	if err != nil {
		stop()
		return nil, err
	}
	l := &learner{
		kept:         kept.NewStore(time.Now),
		signatureKey: key,
		sealer:       sealer,
		store:        st,
		logger:       logger,
		memory:       budget,
		samples:      make(chan sample, maxSamples),
		corrections:  make(chan correction),
		stop:         stop,
		noEffort:     make(map[tokens.Registration]bool),
	}
	l.calibration = tokens.NewCalibration(tokens.NewCounter(), l.load)
	l.unwatch = st.Subscribe(l.onChange)
	l.worker.Go(func() { l.run(ctx) })
	l.worker.Go(func() { l.correct(ctx) })
	return l, nil
}

// close stops the work and writes what was learned.
func (l *learner) close() {
	l.unwatch()
	l.stop()
	l.worker.Wait()
	l.save(context.Background())
}

// load returns what the store has about a registration.
func (l *learner) load(r tokens.Registration) (tokens.Ratios, bool) {
	c, ok := l.store.Calibration(r.Account, r.Deployment)
	if !ok || c.Since.UnixMilli() != r.Since {
		return tokens.Ratios{}, false
	}
	return tokens.Ratios{Plain: c.Plain, Tools: c.Tools}, true
}

// onChange forgets deployments that were removed, and which models know no degrees of
// thinking of those that were set again.
func (l *learner) onChange(c store.Change) {
	if c.Kind != store.KindDeployment {
		return
	}
	if c.Removed {
		l.calibration.Remove(c.Account, c.ID)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.noEffort, func(of tokens.Registration, _ bool) bool { return of.Account == c.Account && of.Deployment == c.ID })
}

// learnNoEffort notes that a deployment's model knows no degrees of thinking,
// until it is set again.
func (l *learner) learnNoEffort(of tokens.Registration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noEffort[of] = true
}

// refusesEffort reports whether a request's model knows no degrees of thinking.
func (l *learner) refusesEffort(registration func() (tokens.Registration, bool)) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.noEffort) == 0 {
		return false
	}
	of, _ := registration()
	return l.noEffort[of]
}

// learn enqueues a sample. It drops it if too many wait, or held, which is to be
// its part of the memory budget, gets no memory.
func (l *learner) learn(m sample, held memory.Reservation) {
	if time.Now().UnixNano() < l.resting.Load() {
		return
	}
	if l.waiting.Add(m.size) <= maxSampleBytes && held.Set(translatedCost*m.size) == nil {
		m.held = held
		select {
		case l.samples <- m:
			return
		default:
			held.Release()
		}
	}
	l.waiting.Add(-m.size)
}

// run works until the context ends.
func (l *learner) run(ctx context.Context) {
	ticker := time.NewTicker(saveInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-l.samples:
			l.remember(m)
		case <-ticker.C:
			l.kept.Expire()
			l.save(ctx)
		}
	}
}

// remember keeps the count of a sample's prompt, and passes the prompt on to
// correct estimates by.
func (l *learner) remember(m sample) {
	begun := time.Now()
	p := m.call.Prompt()
	if p != nil {
		l.calibration.LearnCount(m.of, p, m.tokens)
	}
	now := time.Now()
	l.resting.Store(now.Add(restFactor * now.Sub(begun)).UnixNano())
	if p != nil {
		select {
		case l.corrections <- correction{m.of, p, m.size, m.tokens, m.held}:
			return
		default:
		}
	}
	l.done(m.size, &m.held)
}

// done frees what a sample held.
func (l *learner) done(size int64, held *memory.Reservation) {
	l.waiting.Add(-size)
	held.Release()
}

// correct corrects estimates until the context ends.
func (l *learner) correct(ctx context.Context) {
	for {
		var rest time.Duration
		select {
		case <-ctx.Done():
			return
		case s := <-l.corrections:
			begun := time.Now()
			l.calibration.LearnRatio(s.of, s.prompt, s.tokens)
			l.done(s.size, &s.held)
			rest = restFactor * time.Since(begun)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
	}
}

// save writes what was learned since the last time.
func (l *learner) save(ctx context.Context) {
	for r, ratios := range l.calibration.Export() {
		err := l.store.SaveCalibration(ctx, store.Calibration{
			Account: r.Account, Deployment: r.Deployment, Since: time.UnixMilli(r.Since).UTC(),
			Plain: ratios.Plain, Tools: ratios.Tools,
		})
		if err != nil && ctx.Err() == nil {
			l.logger.Warn("failed to save what was learned about tokens", "deployment", r.Deployment, "error", err)
		}
	}
}

// registration names a deployment as it is registered now.
func registration(d store.Deployment) tokens.Registration {
	return tokens.Registration{Account: d.Account, Deployment: d.Name, Since: d.UpdatedAt.UnixMilli()}
}
