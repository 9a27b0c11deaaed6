package agent

import (
	"context"
	"errors"

	"github.com/postern-dev/postern/connector/link"
)

// errTrial ends a tunnel that was left for one of another configuration, which
// then came to nothing.
var errTrial = errors.New("the new configuration did not work")

// renew takes the configuration that waits: by an update of the tunnel where that
// is enough, else by a new tunnel. While it is dialled, and whenever that fails,
// the tunnel stays.
func (a *Agent) renew(search, ctx context.Context, s *session, found chan<- handover) {
	next, same := a.waiting()
	if next == nil || same && a.update(s, next) {
		return
	}
	// The connection is made first: what can fail there costs nothing. It is of
	// no use to a tunnel that has ended meanwhile.
	living, stop := context.WithCancel(search)
	defer stop()
	defer context.AfterFunc(s.conn.Context(), stop)()
	conn, err := next.open(living, s.conn.Transport())
	switch {
	case living.Err() != nil:
		if err == nil {
			_ = conn.Close(link.CloseNone, "")
		}
		return
	case err != nil:
		a.putOff(next, err)
		return
	}
	good, ok := a.try(next)
	if !ok { // a newer one has come, which wakes us again
		_ = conn.Close(link.CloseNone, "")
		return
	}
	h := a.replace(ctx, s, conn, good)
	if h.next == nil {
		a.giveBack(next, good, h.err)
		if s.departed.Load() {
			found <- handover{err: errTrial}
		}
		return
	}
	a.keep(next, good)
	found <- h
}

// replace moves from a tunnel of another configuration to a new connection. A
// hello of another connector, or to another gateway, cuts nothing: it comes
// first, and the old tunnel is left when it was welcomed.
func (a *Agent) replace(ctx context.Context, s *session, conn link.Conn, old setup) handover {
	if a.hello.Connector == old.hello.Connector && a.pin == old.pin {
		return a.change(ctx, s, conn)
	}
	h := a.welcome(ctx, conn, false)
	if h.next == nil {
		return h
	}
	if err := s.depart(); err != nil {
		s.close(link.CloseNone, err)
	}
	return h
}

// welcome says hello on a connection, beside another tunnel or not.
func (a *Agent) welcome(ctx context.Context, conn link.Conn, beside bool) handover {
	next := newSession(a, conn)
	next.beside = beside
	answer, err := next.introduceWithin(ctx, firstDialTimeout)
	if err == nil {
		err = next.begin(answer)
	}
	if err != nil {
		return handover{err: err}
	}
	return handover{next: next}
}
