package gateway

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/logs"
)

// owners finds the owners of queues among the edges, and enters there.
type owners struct {
	edge   *Edge
	store  *store.Store
	logger *slog.Logger
	alone  logs.Sampler[string] // logs edges that cannot be reached
}

// Owner implements queue.Owners.
func (o *owners) Owner(n queue.Name) (owner string, settled bool) {
	hub := o.edge.hub.Load()
	if hub == nil {
		return "", true
	}
	d, _ := o.store.Deployment(n.Account, n.Deployment)
	return hub.Owner(d.Connectors, n.Account+"\x00"+n.Deployment)
}

// Enter implements queue.Owners.
func (o *owners) Enter(ctx context.Context, owner string, r queue.Request) (queue.Loan, error) {
	hub := o.edge.hub.Load()
	if hub == nil {
		return nil, ErrNotListening
	}
	stream, err := hub.Open(owner)
	if err != nil {
		return nil, err
	}
	entered, err := link.EnterAt(ctx, stream, link.Enter{
		Account: r.Account, Deployment: r.Deployment, Key: r.Key,
		Length: r.Length, WaitMillis: r.Wait.Milliseconds(), Running: r.Running,
	})
	if err != nil {
		return nil, err
	}
	place := loan{stream, entered.Waited}
	switch entered.Refused {
	case "":
		return place, nil
	case link.RefusedFull:
		err = queue.ErrFull
	case link.RefusedTimeout:
		err = queue.ErrTimeout
	default:
		err = errors.New("the owner refuses: " + entered.Refused)
	}
	place.Leave()
	return nil, err
}

// Unreachable implements queue.Owners.
func (o *owners) Unreachable(owner string, r queue.Request, err error) {
	o.alone.Log(o.logger, slog.LevelWarn, owner, time.Now(),
		"counting requests of a model with max_concurrency at this edge alone, as the edge that counts them for all cannot be reached",
		"edge", owner, "deployment", r.Deployment, "error", err)
}

// loan is a place at an edge, on this stream.
type loan struct {
	stream *quic.Stream
	waited bool
}

// Waited implements queue.Loan.
func (l loan) Waited() bool { return l.waited }

// Leave implements queue.Loan.
func (l loan) Leave() { link.Refuse(l.stream, link.CodeNone) }

// Lost implements queue.Loan.
func (l loan) Lost() bool { return l.stream.Context().Err() != nil }

// enter serves the enter of a peer. The place lasts as long as the stream.
func (e *Edge) enter(stream *quic.Stream, m link.Enter) {
	place, err := e.services.Queues.Lend(stream.Context(), queue.Request{
		Name: queue.Name{Account: m.Account, Deployment: m.Deployment}, Key: m.Key,
		Bounds:  queue.Bounds{Length: m.Length, Wait: time.Duration(m.WaitMillis) * time.Millisecond},
		Running: m.Running,
	})
	var answer link.Entered
	switch {
	case err == nil:
		answer.Waited = place.Waited()
		context.AfterFunc(stream.Context(), func() {
			place.Leave()
			link.Refuse(stream, link.CodeNone)
		})
	case errors.Is(err, queue.ErrFull):
		answer.Refused = link.RefusedFull
	case errors.Is(err, queue.ErrTimeout):
		answer.Refused = link.RefusedTimeout
	default: // the peer has canceled
		link.Refuse(stream, link.CodeCancelled)
		return
	}
	if sent := link.NewControl(stream).Send(answer); sent != nil || err != nil {
		_ = stream.Close()
		stream.CancelRead(0)
	}
}
