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
	place   fair.Place
	to      link.To // the header to send, for a connector of a peer
}

// done is called at the end of each request.
func (o *openStream) done() {
	o.place.Leave()
	o.session.finished()
}

// enter takes a place for a request of a client, and waits for it up to d. A peer does that for
// its own sessions.
func (s *Session) enter(ctx context.Context, c fair.Client, d time.Duration) (fair.Place, error) {
	if s.places == nil {
		return fair.Place{}, nil
	}
	if d > 0 {
		waiting, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(s.serving, func() { cancel(errEnded) })()
		ctx = waiting
	}
	place, err := s.places.Enter(ctx, c, d)
	if errors.Is(err, fair.ErrBusy) {
		err = link.ErrNoCredit
	}
	return place, err
}

// open begins a request of a client and opens its stream. It takes a place, unless the request has
// one.
func (s *Session) open(ctx context.Context, c fair.Client, place fair.Place) (o *openStream, err error) {
	if place == (fair.Place{}) {
		if place, err = s.enter(ctx, c, 0); err != nil {
			return nil, err
		}
	}
	// Count first, then check: a drain does it in the opposite order.
	s.active.Add(1)
	o = &openStream{session: s, place: place}
	if s.at != nil {
		o.to = link.To{Connector: s.connector.ID, Owner: c.Owner, Key: c.Key}
	}
	if !s.usable() {
		o.done()
		return nil, errEnded
	}
	if o.Stream, err = s.conn.OpenStream(); err != nil {
		o.Stream, err = s.openSync(ctx)
	}
	if err == nil {
		return o, nil
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

// Reserved is a session with a place for one request of a client. Leave must be called in the end.
type Reserved struct {
	*Session
	sent   bool // the place is that of the request
	client fair.Client
	place  fair.Place
	stream *openStream // of a session at a peer, which has the place
}

// Reserve waits up to d for a place at one of the sessions, for a request of a client. It returns
// link.ErrNoCredit, an error that wraps link.ErrNotSent if all have ended, or the cause of ctx's
// end.
func Reserve(ctx context.Context, sessions []*Session, c fair.Client, d time.Duration) (*Reserved, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		*Reserved
		error
	}
	results := make(chan result, len(sessions))
	for _, s := range sessions {
		go func() {
			var r result
			r.error = panics.Do(s.hub.options.Load().Logger, "waiting for a place of a connector", func() (err error) {
				r.Reserved, err = s.reserve(waiting, c, d)
				return err
			})
			results <- r
		}()
	}
	var first *Reserved
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
			first = r.Reserved
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

// reserve is [Reserve] for one session.
func (s *Session) reserve(ctx context.Context, c fair.Client, d time.Duration) (*Reserved, error) {
	place, err := s.enter(ctx, c, d)
	if err != nil || s.at == nil {
		return &Reserved{Session: s, client: c, place: place}, err
	}
	stream, err := s.open(ctx, c, place)
	if err != nil {
		return nil, err
	}
	to := stream.to
	to.Wait, stream.to = d, link.To{}
	if err := link.Reserve(ctx, stream, to); err != nil {
		stream.done()
		if !errors.Is(err, link.ErrNoCredit) {
			err = errEnded // nothing of the request was sent
		}
		return nil, err
	}
	return &Reserved{Session: s, client: c, stream: stream}, nil
}

// Send is [Session.Send] in the reserved place, once.
func (r *Reserved) Send(request *http.Request, _ fair.Client) (*http.Response, error) {
	r.sent = true
	stream, err := r.stream, error(nil)
	if stream == nil {
		stream, err = r.open(request.Context(), r.client, r.place)
	}
	return r.sendOn(stream, err, request, r.client)
}

// Leave gives the place back, unless the request was sent.
func (r *Reserved) Leave() {
	if r.sent {
		return
	}
	r.place.Leave()
	if r.stream != nil {
		link.Refuse(r.stream, link.CodeCancelled)
		r.stream.done()
	}
}
