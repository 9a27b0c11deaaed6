package caddymodule

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/memory"
)

// learner is what the gateway remembers of requests that have ended: what
// tokens they had, to count others by, and the responses that clients may
// refer to. It lives as long as the open store, so that a reload forgets
// nothing.
type learner struct {
	calibration  *tokens.Calibration
	counting     *queue.Queues // of those who count by it
	kept         *kept.Store
	efforts      efforts // of models that know none
	signatureKey []byte  // of thinking blocks
	sealer       *dialect.Sealer

	store   *store.Store
	logger  *slog.Logger
	lessons chan lesson
	samples chan sample  // taken unless the last one is worked on or rested from
	waiting atomic.Int64 // bytes of requests in lessons and samples
	resting atomic.Int64 // until when no lesson is taken, in Unix nanoseconds
	unwatch func()
	memory  *memory.Budget
	stop    context.CancelFunc
	worker  sync.WaitGroup
}

// lesson is a completed request and what its prompt had in tokens.
type lesson struct {
	of     tokens.Registration
	call   dialect.Call
	size   int64 // bytes of the request
	tokens int64

	held memory.Reservation // of the request, until it was learned from
}

// sample is a prompt to correct estimates by, and what it had in tokens.
type sample struct {
	of     tokens.Registration
	prompt *tokens.Prompt
	size   int64 // bytes of the request
	tokens int64
	held   memory.Reservation
}

// Bounds of what waits to be learned. Under a load that is too high for it the
// gateway learns less.
const (
	maxLessons     = 256
	maxLessonBytes = 64 << 20
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
	key, err := st.Secret(ctx, "thinking_signature", randomKey)
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
		counting:     newCountingQueue(),
		kept:         kept.NewStore(time.Now),
		signatureKey: key,
		sealer:       sealer,
		store:        st,
		logger:       logger,
		memory:       budget,
		lessons:      make(chan lesson, maxLessons),
		samples:      make(chan sample),
		stop:         stop,
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

// load is what the store knows about a registration.
func (l *learner) load(r tokens.Registration) (tokens.Ratios, bool) {
	c, ok := l.store.Calibration(r.Account, r.Deployment)
	if !ok || c.Since.UnixMilli() != r.Since {
		return tokens.Ratios{}, false
	}
	return tokens.Ratios{Plain: c.Plain, Tools: c.Tools}, true
}

// onChange forgets deployments that are removed.
func (l *learner) onChange(c store.Change) {
	if c.Kind == store.KindDeployment && c.Removed {
		l.calibration.Remove(c.Account, c.ID)
		l.efforts.forget(c.Account, c.ID)
	}
}

// learn has a completed request learned from, soon, or not at all when too
// much waits for that, or there is no memory for it to wait: held is to be what
// it holds of the budget.
func (l *learner) learn(m lesson, held memory.Reservation) {
	if time.Now().UnixNano() < l.resting.Load() {
		return
	}
	if l.waiting.Add(m.size) <= maxLessonBytes && held.Set(translatedCost*m.size) == nil {
		m.held = held
		select {
		case l.lessons <- m:
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
		case m := <-l.lessons:
			l.remember(m)
		case <-ticker.C:
			l.kept.Expire()
			l.save(ctx)
		}
	}
}

// remember keeps the count of a lesson's prompt, and hands the prompt on to
// correct estimates by.
func (l *learner) remember(m lesson) {
	begun := time.Now()
	p := m.call.Prompt()
	if p != nil {
		l.calibration.LearnCount(m.of, p, m.tokens)
	}
	now := time.Now()
	l.resting.Store(now.Add(restFactor * now.Sub(begun)).UnixNano())
	if p != nil {
		select {
		case l.samples <- sample{m.of, p, m.size, m.tokens, m.held}:
			return
		default:
		}
	}
	l.done(m.size, &m.held)
}

// done gives back what a lesson held.
func (l *learner) done(size int64, held *memory.Reservation) {
	l.waiting.Add(-size)
	held.Release()
}

// correct corrects estimates by samples until the context ends.
func (l *learner) correct(ctx context.Context) {
	for {
		var rest time.Duration
		select {
		case <-ctx.Done():
			return
		case s := <-l.samples:
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
			l.logger.Warn("saving what was learned about tokens", "deployment", r.Deployment, "error", err)
		}
	}
}

// registration names a deployment as it is registered now.
func registration(d store.Deployment) tokens.Registration {
	return tokens.Registration{Account: d.Account, Deployment: d.Name, Since: d.UpdatedAt.UnixMilli()}
}
