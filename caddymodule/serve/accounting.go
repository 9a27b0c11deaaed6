package serve

import (
	"cmp"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
)

// Ending is how a request ended.
type Ending struct {
	Status int           // sent to the client
	Logged int           // for the activity; for a failed stream, the status of the error
	Class  dialect.Class // of the error, "" for success
	Code   string        // of the error, for logs
	Server string        // class of the model server's text in the error
	Error  string        // text of the error, for logs
	Kind   *dialect.Kind // of the error, nil for success or if the client left
	First  time.Time     // when the first content of a stream was sent, or zero

	FirstToken      time.Duration // from when the model server got the request to First; 0: unknown
	TokensPerSecond float64       // after the first token; 0: unknown, as if the client reads slowly
	writing         time.Duration // in which the client did not read
}

// fail sets the error.
func (e *Ending) fail(err *dialect.Error) {
	e.Class, e.Kind, e.Server = err.Class(), err.Kind, err.ServerError
	e.Code, e.Error = err.Logged()
}

// outcomeOf returns the outcome of a request that has ended with an error of a class, or with none.
func outcomeOf(class dialect.Class) activity.Outcome {
	r := activity.Request{ErrorClass: string(class)}
	return r.Outcome()
}

// attempts is the state of sending a request to model servers.
type attempts struct {
	ready   time.Time         // when Router received the request
	waited  time.Duration     // from then to the first attempt that was not refused
	body    *dialect.Segments // of the last attempt, nil before
	sent    time.Time         // of the running attempt, or zero
	began   time.Time         // the last attempt
	ended   time.Time         // the last attempt that a model server got
	refused bool              // no model has processed the request
	reached bool              // a model server got the request
	busy    time.Duration     // of all attempts
	first   firstToken        // of the running attempt
}

// begin begins an attempt.
func (a *attempts) begin(body *dialect.Segments) {
	now := time.Now()
	if a.waiting() {
		a.waited = now.Sub(a.ready)
	}
	a.body, a.sent, a.began, a.refused = body, now, now, false
}

// wait returns how long the request has waited for its turn and a connector.
func (a *attempts) wait() time.Duration {
	if a.waiting() && !a.ready.IsZero() {
		return time.Since(a.ready)
	}
	return a.waited
}

// waiting reports whether no model server has the request.
func (a *attempts) waiting() bool { return !a.reached && (a.body == nil || a.refused) }

// refuse ends an attempt that no model has seen.
func (a *attempts) refuse() { a.sent, a.refused = time.Time{}, true }

// answered records the status of an answer. A request that the model server refused was not processed.
func (a *attempts) answered(status int) {
	if status != http.StatusOK {
		a.first.stop()
	}
	if status != http.StatusOK && status < http.StatusInternalServerError {
		a.refuse()
	}
}

// end ends an attempt, unless it has ended.
func (a *attempts) end() {
	a.first.end()
	if !a.sent.IsZero() {
		a.reached, a.ended = true, time.Now()
		a.busy += a.ended.Sub(a.sent)
		a.sent = time.Time{}
	}
}

// whole reports whether a model server has the whole prompt, so that its model may have
// processed it.
func (a *attempts) whole() bool { return a.body != nil && a.body.Len() == 0 && !a.refused }

// usage returns the tokens of a request that has ended. If counted is false, the tokens of the
// prompt must be estimated.
func (c *clientRequest) usage() (u dialect.Usage, counted bool) {
	switch {
	case c.streaming:
		u = c.answer.usage()
	case c.translated:
		u = c.exchange.Usage
	case !c.exchange.attempts.whole():
		return u, true
	}
	counted = u.PromptTokens > 0
	u.Estimated = u.Estimated || !counted
	return u, counted
}

// account records a request that has ended. The client does not wait while a prompt is counted.
// If reading the usage panics, the usage is estimated.
func (c *clientRequest) account(e Ending) {
	ex, u, known := c.exchange, dialect.Usage{Estimated: true}, false
	defer func() { // a panic does not keep a request out of limits and usage
		ex.Usage, ex.Outcome = u, outcomeOf(e.Class)
		ex.attempts.pace(&e, u.CompletionTokens)
		if e.Class == "" {
			ex.attempts.first.attempt.Decoded(e.TokensPerSecond, u.CompletionTokens)
		}
		c.Observer.Ended(ex, e)
		if r := ex.request(e); known {
			c.settle(u)
			c.learn(u, r)
		} else {
			c.countLater(u, r)
		}
	}()
	u, known = c.usage()
	ex.Usage = u
	if reasoned := c.info.Reasoned || u.ReasoningTokens > 0; c.info.Effort != "" &&
		(reasoned || c.noEffort && (c.streaming || c.translated)) {
		// A rejection counts only with an answer, as a client can cause the text of the error.
		c.Observed.Effort(&c.deployment, ex.client().Owner, c.info.Effort, c.info.Tools, !c.noEffort)
	}
	ex.span.end(u, &c.info, e)
}

// settle counts the tokens of a request.
func (c *clientRequest) settle(u dialect.Usage) {
	c.Observer.Counted(c.exchange, u)
	c.exchange.settle(u)
}

// countLater estimates the tokens of the prompt, and then records the request.
func (c *clientRequest) countLater(u dialect.Usage, r activity.Request) {
	counted := func(n int, _ tokens.Doubt) {
		u.PromptTokens, r.InputTokens = int64(n), n
		c.settle(u)
		c.Activity.Record(c.exchange.Account, r)
	}
	if deployed, ok := c.registration(); !ok || !c.completions.count(c.sample(deployed, 0), counted) {
		counted(int(c.size/dialect.BytesPerToken), tokens.None)
	}
}

// cutPart is what a request has lost if the model server has cut its prompt.
const cutPart = "a part of the prompt, cut by the model server"

// learn records a request, and the model server's count of its prompt for later ones. If the count is low, the request
// is recorded when it is known whether the prompt was cut.
func (c *clientRequest) learn(u dialect.Usage, r activity.Request) {
	n := cmp.Or(c.overflow, promptTokens(u))
	deployed, ok := c.registration()
	if ok = ok && c.exchange.Operation.IsChat() && n > 0 && (c.overflow > 0 || !u.Estimated); ok {
		m := c.sample(deployed, n)
		m.connector, m.refused = c.exchange.Connector, c.overflow > 0
		if m.size > tokens.MaxBytesPerToken*n && !m.refused {
			c.recordLater(&m, r)
		}
		c.completions.learn(m)
		ok = m.counted != nil
	}
	if !ok {
		c.Activity.Record(c.exchange.Account, r)
	}
}

// recordLater lets a sample record a request.
func (c *clientRequest) recordLater(m *sample, r activity.Request) {
	m.counted = func(_ int, doubt tokens.Doubt) {
		if doubt == tokens.Cut {
			r.Dropped = strings.TrimPrefix(r.Dropped+", "+cutPart, ", ")
		}
		c.Activity.Record(c.exchange.Account, r)
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
		Operation:       ex.Operation.Name(),
		Status:          e.Logged,
		ErrorClass:      string(e.Class),
		ErrorCode:       e.Code,
		Error:           e.Error,
		Reason:          ex.why(e),
		ServerError:     e.Server,
		Streamed:        ex.Streamed,
		Dropped:         ex.Dropped,
		MaxTokens:       int(ex.MaxTokens),
		WaitMillis:      float64(ex.attempts.wait().Round(time.Millisecond).Milliseconds()),
		DurationMillis:  activity.Millis(time.Since(ex.Start)),
		InputTokens:     int(ex.Usage.PromptTokens),
		CachedTokens:    int(ex.Usage.CachedTokens),
		OutputTokens:    int(ex.Usage.CompletionTokens),
		ReasoningTokens: int(ex.Usage.ReasoningTokens),
		Estimated:       ex.Usage.Estimated,
	}
	if ex.Model != ex.Deployment {
		r.Model = ex.ModelName()
	}
	if ex.attempts.reached {
		r.BusyMillis = activity.Millis(ex.attempts.busy)
	}
	if !e.First.IsZero() {
		r.FirstTokenMillis = activity.Millis(e.FirstToken)
		r.TokensPerSecond = math.Round(10*e.TokensPerSecond) / 10
	}
	return r
}

// pace sets how fast a stream was: of its last attempt, without any wait.
func (a *attempts) pace(e *Ending, tokens int64) {
	if e.First.IsZero() {
		return
	}
	e.FirstToken = max(time.Millisecond, e.First.Sub(a.began))
	if decoding := a.ended.Sub(e.First); decoding >= max(time.Millisecond, 2*e.writing) && tokens > 1 {
		e.TokensPerSecond = float64(tokens-1) / decoding.Seconds()
	}
}
