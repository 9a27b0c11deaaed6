package tunnel

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/panics"
)

// creditWait is how long a request waits for the connector to allow another stream:
// the end of an earlier request may still be in transit.
const creditWait = time.Second

// openStream is the stream of a request that is counted until done.
type openStream struct {
	*quic.Stream
	session *Session
	permit  fair.Permit
	header  link.RelayHeader // sent first, to a peer with the tunnel
	silent  bool             // reset by onSilence; guarded by session.waitingMu
	refers  bool             // the request may be sent again with the permit
	ended   bool             // done was called
}

// done is called at the end of each request.
func (o *openStream) done() {
	o.session.setWaiting(o, false)
	if o.ended = true; !o.refers {
		o.permit.Leave()
	}
	o.session.finished()
}

// accepted lets done release the permit: the request is not sent again.
func (o *openStream) accepted() {
	if o.refers = false; o.ended {
		o.permit.Leave()
	}
}

// acquire waits up to d for a permit for a request of a client. A session at a peer needs none here:
// the peer acquires one.
func (s *Session) acquire(ctx context.Context, c fair.Client, d time.Duration) (fair.Permit, error) {
	if s.permits == nil {
		return fair.Permit{}, nil
	}
	if d > 0 {
		waiting, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(s.serving, func() { cancel(errEnded) })()
		ctx = waiting
	}
	permit, err := s.permits.Enter(ctx, c, d)
	if errors.Is(err, fair.ErrBusy) {
		err = link.ErrNoCredit
	}
	return permit, err
}

// open begins a request of a client and opens its stream. It takes a permit, unless the request has
// one.
func (s *Session) open(ctx context.Context, c fair.Client, permit fair.Permit) (o *openStream, err error) {
	if permit == (fair.Permit{}) {
		if permit, err = s.acquire(ctx, c, 0); err != nil {
			return nil, err
		}
	}
	// Count first, then check: a drain does it in the opposite order.
	s.active.Add(1)
	o = &openStream{session: s, permit: permit}
	if s.peer != nil {
		o.header = link.RelayHeader{Connector: s.connector.ID, Owner: c.Owner, Key: c.Key}
	}
	if !s.usable() {
		o.done()
		return nil, errEnded
	}
	if o.Stream, err = s.conn.OpenStream(); err != nil {
		o.Stream, err = s.openSync(ctx)
	}
	if err == nil {
		s.setWaiting(o, true)
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

// finished is called at the end of each request.
func (s *Session) finished() {
	if s.active.Add(-1) == 0 && s.draining.Load() {
		s.idleOnce.Do(func() { close(s.idle) })
	}
}

// PermittedSession is a session with a permit for one request of a client. Leave must be called in the end.
type PermittedSession struct {
	*Session
	sent   bool // the request releases the permit
	client fair.Client
	permit fair.Permit
	stream *openStream // to a peer that has acquired the permit
}

// AwaitPermit waits up to d for a permit of one of the sessions, for a request of a client. It returns
// link.ErrNoCredit, an error that wraps link.ErrNotSent if all have ended, or the cause of ctx's
// end.
func AwaitPermit(ctx context.Context, sessions []*Session, c fair.Client, d time.Duration) (*PermittedSession, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		*PermittedSession
		error
	}
	results := make(chan result, len(sessions))
	for _, s := range sessions {
		go func() {
			var r result
			r.error = panics.Do(s.hub.options.Load().Logger, "waiting for a permit of a connector", func() (err error) {
				r.PermittedSession, err = s.awaitPermit(waiting, c, d)
				return err
			})
			results <- r
		}()
	}
	var first *PermittedSession
	err := errEnded
	for range sessions {
		switch r := <-results; {
		case r.error != nil:
			if errors.Is(r.error, link.ErrNoCredit) {
				err = link.ErrNoCredit
			}
		case first != nil:
			r.Leave()
		default:
			first = r.PermittedSession
			cancel()
		}
	}
	switch {
	case first != nil:
		return first, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, err
}

// awaitPermit is [AwaitPermit] for one session.
func (s *Session) awaitPermit(ctx context.Context, c fair.Client, d time.Duration) (*PermittedSession, error) {
	permit, err := s.acquire(ctx, c, d)
	if err != nil || s.peer == nil {
		return &PermittedSession{Session: s, client: c, permit: permit}, err
	}
	stream, err := s.open(ctx, c, permit)
	if err != nil {
		return nil, err
	}
	header := stream.header
	header.Wait, stream.header = d, link.RelayHeader{}
	if err := link.AwaitPermit(ctx, stream, header); err != nil {
		stream.done()
		if !errors.Is(err, link.ErrNoCredit) {
			err = errEnded // nothing of the request was sent
		}
		return nil, err
	}
	return &PermittedSession{Session: s, client: c, stream: stream}, nil
}

// Send is [Session.Send] with the permit, once.
func (r *PermittedSession) Send(request *http.Request, _ fair.Client) (*http.Response, error) {
	r.sent = true
	stream, err := r.stream, error(nil)
	if stream == nil {
		stream, err = r.open(request.Context(), r.client, r.permit)
	}
	return r.sendOn(stream, err, request, r.client)
}

// Leave releases the permit, unless the request was sent.
func (r *PermittedSession) Leave() {
	if r.sent {
		return
	}
	r.permit.Leave()
	if r.stream != nil {
		link.Refuse(r.stream, link.CodeCancelled)
		r.stream.done()
	}
}
