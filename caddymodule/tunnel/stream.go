package tunnel

import (
	"context"
	"errors"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
)

// creditWait is how long a request waits for the connector to allow another stream:
// the end of an earlier request may still be in transit.
const creditWait = time.Second

// openStream is the stream of a request that is counted until done.
type openStream struct {
	*quic.Stream
	session *Session
	// wasReset means that onSilence has reset the stream. It is guarded by session.unansweredMu.
	wasReset bool
}

// done is called at the end of each request.
func (o *openStream) done() {
	s := o.session
	s.setUnanswered(o, false)
	if s.active.Add(-1) == 0 && s.draining.Load() {
		s.idleOnce.Do(func() { close(s.idle) })
	}
}

// open begins a request and opens its stream.
func (s *Session) open(ctx context.Context) (o *openStream, err error) {
	// Count first, then check: a drain does it in the opposite order.
	s.active.Add(1)
	o = &openStream{session: s}
	if !s.usable() {
		o.done()
		return nil, errEnded
	}
	if o.Stream, err = s.conn.OpenStream(); err != nil {
		o.Stream, err = s.openSync(ctx)
	}
	if err == nil {
		s.setUnanswered(o, true)
		if !s.silent.Load() {
			return o, nil
		}
		link.Refuse(o, link.CodeCancelled) // silent since the check above; nothing was sent
	}
	o.done()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, link.ErrNoCredit
	default:
		return nil, errEnded
	}
}

// openSync waits up to creditWait for the connector to allow another stream.
func (s *Session) openSync(ctx context.Context) (*quic.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, creditWait)
	defer cancel()
	defer context.AfterFunc(s.serving, cancel)()
	return s.conn.OpenStreamSync(ctx)
}
