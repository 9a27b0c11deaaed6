package serve

import (
	"context"
	"io"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/observed"
)

// firstToken is the wait of an attempt for the first token of its answer: the first content of a stream, or the first
// byte of the body of another answer.
type firstToken struct {
	attempt observed.Attempt
	timeout *time.Timer // nil without the option first_token_timeout
	cancel  context.CancelCauseFunc
}

// begin begins the wait of an attempt that is sent through a connector. The returned context ends at the timeout.
func (f *firstToken) begin(ctx context.Context, t *turn) context.Context {
	ex, option := t.exchange, t.deployment.Options.FirstTokenTimeout
	f.attempt = ex.backend.Observed.Begin(ex.Account, ex.Deployment, ex.Connector)
	if limit, _ := time.ParseDuration(option); limit > 0 {
		ctx, f.cancel = context.WithCancelCause(ctx)
		cancel, late := f.cancel, dialect.FirstTokenTimeout(ex.Deployment, option)
		f.timeout = time.AfterFunc(limit, func() { cancel(late) })
	}
	return ctx
}

// came records that the first token has come.
func (f *firstToken) came() {
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

// wholeBody is the body of an answer that is not a stream. Its first byte counts as the first token.
type wholeBody struct {
	io.Reader
	first *firstToken
}

// Read implements io.Reader.
func (b *wholeBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if n > 0 {
		b.first.came()
	}
	return n, err
}
