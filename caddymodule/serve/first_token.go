package serve

import (
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/observed"
)

// firstToken is the wait of an attempt for the first token of a stream: its first content. Model servers send other
// answers when they are complete, so the time of their first token is not known. A judge must have answered in time.
type firstToken struct {
	attempt observed.Attempt
	timeout *time.Timer // nil without the option first_token_timeout
	cancel  context.CancelCauseFunc
}

// begin begins the wait of an attempt that is sent through a connector. The returned context ends at the timeout.
func (f *firstToken) begin(ctx context.Context, t *routing) context.Context {
	streamed := t.call.Streamed()
	if ex := t.exchange; !ex.idle() { // it would end the measurement
		f.attempt = ex.backend.Observed.Begin(t.deployment, ex.Connector, ex.Key.ID(), streamed)
	}
	if t.judge {
		ctx, cancel := context.WithTimeoutCause(ctx, judgeWait, dialect.JudgeTimeout(t.deployment.Name))
		f.cancel = func(error) { cancel() }
		return ctx
	}
	if !streamed {
		return ctx
	}
	option := t.deployment.Options.FirstTokenTimeout
	limit, _ := time.ParseDuration(option)
	if limit <= 0 {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(ctx)
	late := dialect.FirstTokenTimeout(t.deployment.Name, option)
	f.timeout, f.cancel = time.AfterFunc(limit, func() { cancel(late) }), cancel
	return ctx
}

// arrived records that the first token has come.
func (f *firstToken) arrived() {
	f.attempt.First()
	f.stop()
}

// stop ends the time limit: the first token has come, or an error in its place.
func (f *firstToken) stop() {
	if f.timeout != nil {
		f.timeout.Stop()
	}
}

// end ends the attempt.
func (f *firstToken) end() {
	f.attempt.End()
	if f.stop(); f.cancel != nil {
		f.cancel(nil)
		f.timeout, f.cancel = nil, nil
	}
}
