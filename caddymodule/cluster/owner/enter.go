package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/wait"
)

// An owner reports that a request waits after waitingPause, as most requests have a permit by then. It
// repeats the report after each repeatPause.
const (
	waitingPause = 10 * time.Millisecond
	repeatPause  = 300 * time.Millisecond
)

// limitAnswer is the answer of an owner about limits, in [link.Entered].
type limitAnswer struct {
	Refusal *limits.Refusal `json:"refusal,omitempty"`
	limits.Usage
}

// enterThere enters a request at another edge. errSilent means that the edge does not answer.
func (o *Owners) enterThere(ctx context.Context, edge string, r queue.Request) (queue.Permit, error) {
	stream, err := o.Open(edge)
	if err != nil {
		return queue.Permit{}, err
	}
	permitted := false
	defer func() { // after a panic, too
		if !permitted {
			link.Refuse(stream, link.CodeNone)
		}
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(answerTimeout, func() { cancel(errSilent) })
	defer silent.Stop()

	enter := link.Enter{
		Account: r.Account, Deployment: r.Deployment, Owner: r.Owner, Key: r.Key,
		Length: r.Length, WaitMillis: r.Bounds.Wait.Milliseconds(),
	}
	if r.Deployment == "" {
		enter.Need, _ = json.Marshal(r.Need) // its fields always encode
	}
	entered, err := link.AskPermit(ctx, stream, enter, func() { silent.Reset(silentTimeout) })
	if err != nil {
		return queue.Permit{}, err
	}
	look, err := read(entered)
	if err != nil {
		return queue.Permit{}, err
	}
	permitted = true
	return queue.RemotePermit(entered.Waited, look, func(used limits.Used) { release(stream, used) }), nil
}

// read reads the answer of an owner. A refusal is an error.
func read(entered link.Entered) (limits.Usage, error) {
	var answer limitAnswer
	if entered.Limits != nil {
		if err := json.Unmarshal(entered.Limits, &answer); err != nil {
			return limits.Usage{}, fmt.Errorf("reading the answer of the owner: %w", err)
		}
	}
	switch {
	case answer.Refusal != nil:
		return limits.Usage{}, answer.Refusal
	case entered.Refused == "":
		return answer.Usage, nil
	case entered.Refused == link.RefusedFull:
		return limits.Usage{}, queue.ErrFull
	case entered.Refused == link.RefusedTimeout:
		return limits.Usage{}, queue.ErrTimeout
	}
	return limits.Usage{}, errors.New("the owner refuses: " + entered.Refused)
}

// release releases a permit of another edge, and reports what the request has used. If the stream was lost,
// the permit has ended; the next owner reads the usage from the store.
func release(stream link.Stream, used limits.Used) {
	if used == (limits.Used{}) {
		link.Refuse(stream, link.CodeNone)
		return
	}
	data, _ := json.Marshal(used) // its fields always encode
	link.ReleasePermit(stream, link.Used{Used: data})
}

// Serve enters the queue for a request of another edge. The permit ends with the stream, or when the
// other edge reports the usage of the request.
func (o *Owners) Serve(stream link.Stream, m link.Enter) {
	r := queue.Request{
		Name: queue.Name{Account: m.Account, Deployment: m.Deployment}, Key: m.Key, Owner: m.Owner,
		Bounds: queue.Bounds{Length: m.Length, Wait: time.Duration(m.WaitMillis) * time.Millisecond},
	}
	if m.Need != nil && json.Unmarshal(m.Need, &r.Need) != nil {
		link.Refuse(stream, link.CodeInternal)
		return
	}
	if !o.serving() {
		link.Refuse(stream, link.CodeDraining)
		return
	}
	control := link.NewControl(stream)
	permit, err := o.wait(stream, control, r)
	answer, entered := limitAnswer{Usage: permit.Usage()}, link.Entered{Waited: permit.Waited()}
	switch {
	case err == nil:
	case errors.Is(err, queue.ErrFull):
		entered.Refused = link.RefusedFull
	case errors.Is(err, queue.ErrTimeout):
		entered.Refused = link.RefusedTimeout
	case errors.As(err, &answer.Refusal):
		entered.Refused = link.RefusedLimit
	default: // the other edge has canceled
		link.Refuse(stream, link.CodeCancelled)
		return
	}
	if m.Deployment == "" {
		entered.Limits, _ = json.Marshal(answer) // its fields always encode
	}
	sent := control.Send(entered)
	if err != nil {
		_ = stream.Close()
		stream.CancelRead(0)
		return
	}
	settle := func(used limits.Used) {
		permit.Settle(used)
		link.Refuse(stream, link.CodeNone)
	}
	if m.Deployment != "" {
		context.AfterFunc(stream.Context(), func() { settle(limits.Used{}) })
		return
	}
	var used limits.Used
	defer func() { settle(used) }() // after a panic, too

	if m, err := control.Receive(); sent == nil && err == nil { // it fails when the other edge resets the stream
		if u, ok := m.(link.Used); ok {
			_ = json.Unmarshal(u.Used, &used)
		}
	}
}

// serving reports whether this edge counts requests of others.
func (o *Owners) serving() bool {
	for _, e := range o.Edges() {
		if e.Name == o.Edge {
			return canOwn(e)
		}
	}
	return false
}

// wait enters the queue here, and meanwhile reports to the other edge that the request waits.
func (o *Owners) wait(stream link.Stream, control *link.Control, r queue.Request) (queue.Permit, error) {
	waiting, end := context.WithCancel(stream.Context())
	var reports sync.WaitGroup
	defer reports.Wait() // so that the answer is sent after all reports
	defer end()
	reports.Go(func() {
		for pause := waitingPause; wait.For(waiting, pause) == nil && control.Send(link.Waiting{}) == nil; {
			pause = repeatPause
		}
	})
	return o.Queues.EnterHere(stream.Context(), r)
}
