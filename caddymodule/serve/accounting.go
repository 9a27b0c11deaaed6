package serve

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
)

// Ending is how a request ended.
type Ending struct {
	Status int           // sent to the client
	Logged int           // for the activity; that of a stream which failed is the error's
	Class  dialect.Class // of the error, "" for success
	Code   string        // of the error, for logs
	Error  string        // text of the error, for logs
	Kind   *dialect.Kind // of the error, nil for success or if the client left
	First  time.Time     // when the first content of a stream was sent, or zero
}

// fail sets the error.
func (e *Ending) fail(err *dialect.Error) {
	e.Class, e.Kind = err.Class(), err.Kind
	e.Code, e.Error = err.Logged()
}

// delivery is the state of sending a request to model servers.
type delivery struct {
	ready   time.Time         // when the request was read
	waited  time.Duration     // from then to the first try that was not refused
	body    *dialect.Segments // of the last try, nil before
	at      time.Time         // of the last try, or zero
	refused bool              // no model has processed it
	reached bool              // a model server got it
	busy    time.Duration     // of all tries
}

// begin begins a try.
func (d *delivery) begin(body *dialect.Segments) {
	now := time.Now()
	if d.waits() {
		d.waited = now.Sub(d.ready)
	}
	d.body, d.at, d.refused = body, now, false
}

// wait returns how long the request has waited for its turn and a connector.
func (d *delivery) wait() time.Duration {
	if d.waits() && !d.ready.IsZero() {
		return time.Since(d.ready)
	}
	return d.waited
}

// waits reports whether no model server has the request.
func (d *delivery) waits() bool { return !d.reached && (d.body == nil || d.refused) }

// refuse ends a try that no model has seen.
func (d *delivery) refuse() { d.at, d.refused = time.Time{}, true }

// end ends a try.
func (d *delivery) end() {
	if !d.at.IsZero() {
		d.reached = true
		d.busy += time.Since(d.at)
		d.at = time.Time{}
	}
}

// whole reports whether a model server has the whole prompt, so that its model may have
// processed it.
func (d *delivery) whole() bool { return d.body != nil && d.body.Len() == 0 && !d.refused }

// usage returns the tokens of a request that has ended. If counted is false, those of the
// prompt are yet to be estimated.
func (c *completion) usage() (u dialect.Usage, counted bool) {
	switch {
	case c == nil: // it was not for a model
		return u, true
	case c.streaming:
		u = c.answer.usage()
	case c.translated:
		u = c.exchange.Usage
	case !c.delivery.whole():
		return u, true
	}
	counted = u.PromptTokens > 0
	u.Estimated = u.Estimated || !counted
	return u, counted
}

// account records a request that has ended. If its prompt must be counted, that happens
// later: the client does not wait for it. After a panic in the answer's usage, it is estimated.
func (t *Translator) account(ex *Exchange, e Ending) {
	c, u, known := ex.completion, dialect.Usage{Estimated: true}, false
	defer func() { // a panic does not keep a request out of limits and usage
		ex.Usage = u
		t.Observer.Ended(ex, e)
		if r := ex.request(e); known {
			t.count(ex, u, r)
			c.learn(u)
		} else {
			t.countLater(c, u, r)
		}
	}()
	u, known = c.usage()
	ex.Usage = u
	ex.tries.end(ex, e)
}

// count records a request with its tokens.
func (t *Translator) count(ex *Exchange, u dialect.Usage, r activity.Request) {
	t.Observer.Counted(ex, u)
	ex.backend.Activity.Record(ex.Account, r)
	ex.settle(u)
}

// countLater estimates the tokens of the prompt, and then records the request.
func (t *Translator) countLater(c *completion, u dialect.Usage, r activity.Request) {
	counted := func(n int) {
		u.PromptTokens, r.InputTokens = int64(n), n
		t.count(c.exchange, u, r)
	}
	if of, ok := c.registration(); !ok || !c.learner.count(c.sample(of, 0), counted) {
		counted(int(c.size / dialect.BytesPerToken))
	}
}

// learn enqueues a sample if the upstream counted the tokens of the prompt.
func (c *completion) learn(u dialect.Usage) {
	if c == nil || u.Estimated || u.PromptTokens <= 0 {
		return
	}
	isChat := c.exchange.Operation.Dialect == dialect.Chat
	if isChat && c.exchange.Operation.Kind != dialect.ChatCompletions {
		return
	}
	if of, ok := c.registration(); ok {
		c.learner.learn(c.sample(of, u.PromptTokens))
	}
}

// request returns the record of a request for its account's activity, without its content.
func (ex *Exchange) request(e Ending) activity.Request {
	key := ex.Key.Key()
	r := activity.Request{
		ID:              ex.RequestID,
		Time:            ex.Start,
		KeyID:           key.ID,
		KeyName:         key.Name,
		Deployment:      ex.Deployment,
		Connector:       ex.Connector,
		Dialect:         string(ex.Operation.Dialect),
		Operation:       operationNames[ex.Operation.Kind],
		Status:          e.Logged,
		ErrorClass:      string(e.Class),
		ErrorCode:       e.Code,
		Error:           e.Error,
		Streamed:        ex.Streamed,
		DurationMillis:  activity.Millis(time.Since(ex.Start)),
		InputTokens:     int(ex.Usage.PromptTokens),
		CachedTokens:    int(ex.Usage.CachedTokens),
		OutputTokens:    int(ex.Usage.CompletionTokens),
		ReasoningTokens: int(ex.Usage.ReasoningTokens),
		Estimated:       ex.Usage.Estimated,
	}
	if ex.Deployment == "" {
		r.Model = ex.ModelName()
	}
	if c := ex.completion; c != nil {
		r.WaitMillis = float64(c.delivery.wait().Round(time.Millisecond).Milliseconds())
		if c.delivery.reached {
			r.BusyMillis = activity.Millis(c.delivery.busy)
		}
	}
	if !e.First.IsZero() {
		r.FirstTokenMillis = activity.Millis(e.First.Sub(ex.Start))
	}
	return r
}
