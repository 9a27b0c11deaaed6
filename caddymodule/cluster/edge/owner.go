package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/logs"
	"github.com/postern-dev/postern/connector/panics"
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
func (o *owners) Enter(ctx context.Context, owner string, r queue.Request) (_ queue.Loan, err error) {
	hub := o.edge.hub.Load()
	if hub == nil {
		return nil, gateway.ErrNotListening
	}
	stream, err := hub.Open(owner)
	if err != nil {
		return nil, err
	}
	defer func() {
		if p := panics.Caught(recover()); p != nil {
			p.Log(o.logger, "entering a queue at a peer")
			link.Refuse(stream, link.CodeNone)
			err = p
		}
	}()
	entered, err := link.EnterAt(ctx, stream, link.Enter{
		Account: r.Account, Deployment: r.Deployment, Owner: r.Owner, Key: r.Key,
		Length: r.Length, WaitMillis: r.Bounds.Wait.Milliseconds(), Running: r.Running, Need: encodeNeed(r),
	})
	if err != nil {
		return nil, err
	}
	place := loan{stream: stream, waited: entered.Waited}
	err = place.read(entered)
	if err != nil {
		link.Refuse(stream, link.CodeNone)
		return nil, err
	}
	return place, nil
}

// Unreachable implements queue.Owners.
func (o *owners) Unreachable(owner string, r queue.Request, err error) {
	what := "a model with max_concurrency"
	if r.Deployment == "" {
		what = "an account with limits"
	}
	o.alone.Log(o.logger, slog.LevelWarn, owner, time.Now(),
		"counting requests of "+what+" at this edge alone, as the edge that counts them for all cannot be reached",
		"edge", owner, "account_id", r.Account, "deployment", r.Deployment, "error", err)
}

// loan is a place at an edge, on this stream.
type loan struct {
	stream *quic.Stream
	waited bool
	limitAnswer
}

// Waited implements queue.Loan.
func (l loan) Waited() bool { return l.waited }

// Look implements queue.Loan.
func (l loan) Look() limits.Look { return l.limitAnswer.Look }

// Settle implements queue.Loan.
func (l loan) Settle(used limits.Used) {
	if used == (limits.Used{}) {
		link.Refuse(l.stream, link.CodeNone)
		return
	}
	data, _ := json.Marshal(used) // its fields always encode
	link.LeaveAt(l.stream, link.Used{Used: data})
}

// Lost implements queue.Loan.
func (l loan) Lost() bool { return l.stream.Context().Err() != nil }

// limitAnswer is the answer of an owner about limits, in [link.Entered].
type limitAnswer struct {
	Refusal *limits.Refusal `json:"refusal,omitempty"`
	limits.Look
}

// encodeNeed returns what a request needs under limits, nil for the queue of a deployment.
func encodeNeed(r queue.Request) json.RawMessage {
	if r.Deployment != "" {
		return nil
	}
	data, _ := json.Marshal(r.Need) // its fields always encode
	return data
}

// read reads the answer of an owner. It returns its refusal.
func (l *loan) read(entered link.Entered) error {
	if entered.Limits != nil {
		if err := json.Unmarshal(entered.Limits, &l.limitAnswer); err != nil {
			return fmt.Errorf("reading the answer of the owner: %w", err)
		}
	}
	switch {
	case l.Refusal != nil:
		return l.Refusal
	case entered.Refused == "":
		return nil
	case entered.Refused == link.RefusedFull:
		return queue.ErrFull
	case entered.Refused == link.RefusedTimeout:
		return queue.ErrTimeout
	}
	return errors.New("the owner refuses: " + entered.Refused)
}

// enter serves the enter of a peer. The place lasts as long as the stream, or until the peer
// tells what the request has used.
func (e *Edge) enter(stream *quic.Stream, m link.Enter) {
	r := queue.Request{
		Name: queue.Name{Account: m.Account, Deployment: m.Deployment}, Key: m.Key, Owner: m.Owner,
		Bounds:  queue.Bounds{Length: m.Length, Wait: time.Duration(m.WaitMillis) * time.Millisecond},
		Running: m.Running,
	}
	if m.Need != nil && json.Unmarshal(m.Need, &r.Need) != nil {
		link.Refuse(stream, link.CodeInternal)
		return
	}
	place, err := e.services.Queues.Lend(stream.Context(), r)
	answer, entered := limitAnswer{Look: place.Look()}, link.Entered{Waited: place.Waited()}
	switch {
	case err == nil:
	case errors.Is(err, queue.ErrFull):
		entered.Refused = link.RefusedFull
	case errors.Is(err, queue.ErrTimeout):
		entered.Refused = link.RefusedTimeout
	case errors.As(err, &answer.Refusal):
		entered.Refused = link.RefusedLimit
	default: // the peer has canceled
		link.Refuse(stream, link.CodeCancelled)
		return
	}
	if m.Deployment == "" {
		entered.Limits, _ = json.Marshal(answer) // its fields always encode
	}
	control := link.NewControl(stream)
	sent := control.Send(entered)
	if err != nil {
		_ = stream.Close()
		stream.CancelRead(0)
		return
	}
	leave := func(used limits.Used) {
		place.Settle(used)
		link.Refuse(stream, link.CodeNone)
	}
	if m.Deployment != "" {
		context.AfterFunc(stream.Context(), func() { leave(limits.Used{}) })
		return
	}
	var used limits.Used
	defer func() { leave(used) }() // after a panic, too

	if m, err := control.Receive(); sent == nil && err == nil { // it fails when the peer resets the stream
		if u, ok := m.(link.Used); ok {
			_ = json.Unmarshal(u.Used, &used)
		}
	}
}
