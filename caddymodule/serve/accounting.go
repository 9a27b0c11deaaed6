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
	waited  time.Duration     // from the arrival to the first attempt that was not refused
	body    *dialect.Segments // of the last attempt, nil before
	size    int64             // of that body, in bytes
	sent    time.Time         // of the running attempt, or zero
	began   time.Time         // the last attempt
	ended   time.Time         // the last attempt that a model server got
	refused bool              // no model has processed the request
	reached bool              // a model server got the request
	busy    time.Duration     // of all attempts
	first   firstToken        // of the running attempt
}

// begin begins an attempt to send a request that arrived then.
func (a *attempts) begin(body *dialect.Segments, arrived time.Time) {
	now := time.Now()
	if a.unserved() {
		a.waited = now.Sub(arrived)
	}
	a.body, a.size, a.sent, a.began, a.refused = body, body.Len(), now, now, false
}

// waitTime returns how long a request that arrived then has waited in the line of its deployment and for a connector.
func (a *attempts) waitTime(arrived time.Time) time.Duration {
	if a.unserved() && !arrived.IsZero() {
		return time.Since(arrived)
	}
	return a.waited
}

// unserved reports whether no model server has got the request, or each has refused it.
func (a *attempts) unserved() bool { return !a.reached && (a.body == nil || a.refused) }

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

// promptReceived reports whether a model server has the whole prompt, so that its model may have
// processed it.
func (a *attempts) promptReceived() bool { return a.body != nil && a.body.Len() == 0 && !a.refused }

// begun reports whether the body of the last attempt has begun to leave.
func (a *attempts) begun() bool { return a.body != nil && a.body.Len() < a.size }

// finish accounts for a request that has ended. The client does not wait while a prompt is counted.
// If reading the usage panics, the usage is estimated.
func (c *clientRequest) finish(e Ending) {
	ex, u, counted := c.exchange, dialect.Usage{Estimated: true}, false
	defer func() { // a panic does not keep a request out of limits and usage
		ex.Usage, ex.Outcome = u, outcomeOf(e.Class)
		ex.attempts.setSpeed(&e, u.CompletionTokens)
		if e.Class == "" {
			ex.attempts.first.attempt.Decoded(e.TokensPerSecond, u.CompletionTokens)
		}
		c.Observer.Ended(ex, e)
		c.record(u, counted, c.entry(e))
	}()
	u, counted = c.usageOf()
	ex.Usage = u
	if reasoned := c.info.Reasoned || u.ReasoningTokens > 0; c.info.Effort != "" &&
		(reasoned || c.effortRejected && (c.streaming || c.wholeTranslated)) {
		// A rejection counts only with an answer, as a client can cause the text of the error.
		c.Observed.Effort(&c.deployment, ex.client().Owner, c.info.Effort, c.info.Tools, !c.effortRejected)
	}
	ex.span.end(u, &c.info, e)
}

// usageOf returns the tokens of a request that has ended. If counted is false, the tokens of the
// prompt must be estimated.
func (c *clientRequest) usageOf() (u dialect.Usage, counted bool) {
	switch {
	case c.streaming:
		u = c.answer.usage()
	case c.wholeTranslated:
		u = c.exchange.Usage
	case !c.exchange.attempts.promptReceived():
		return u, true
	}
	if u.PromptTokens == 0 && (c.judge || c.exchange.measures()) { // it cannot be counted later
		u.PromptTokens, u.Estimated = c.size/dialect.BytesPerToken, true
	}
	media := c.media()
	counted = u.PromptTokens > 0 || media != nil && media.Unit() != "" // the size of a file says nothing about tokens
	u.Estimated = u.Estimated || !counted
	return u, counted
}

// cutPart is what a request has lost if the model server has cut its prompt.
const cutPart = "a part of the prompt, cut by the model server"

// record passes the tokens of a request to its limits, and its entry to the activity. The model server's count of the
// prompt, or of one that it has refused as too long, corrects later estimates. If it has not counted, the prompt is
// counted first. If its count is low, the entry waits until it is known whether the prompt was cut.
func (c *clientRequest) record(u dialect.Usage, counted bool, r activity.Request) {
	n, refused := cmp.Or(c.refusedTokens, promptTokens(u)), c.refusedTokens > 0
	if counted {
		c.settle(u)
	}
	learns := c.exchange.Operation.IsChat() && !c.exchange.measures()
	if !counted || learns && n > 0 && (refused || !u.Estimated) {
		m := c.sample()
		if later := !counted || m.known && m.size > tokens.MaxBytesPerToken*n && !refused; later {
			m.done = c.recordLater(u, counted, r)
		}
		if counted {
			m.tokens, m.refused = n, refused
		}
		if m.known || !counted {
			c.completions.correctEstimates(m)
		}
		if m.done != nil {
			return
		}
	}
	c.Activity.Record(c.exchange.Account, r)
}

// recordLater returns a function that records a request once its prompt was evaluated.
func (c *clientRequest) recordLater(u dialect.Usage, counted bool, r activity.Request) func(int, tokens.Doubt) {
	return func(n int, doubt tokens.Doubt) {
		if !counted {
			u.PromptTokens, r.InputTokens = int64(n), n
			c.settle(u)
		}
		if doubt == tokens.Cut {
			r.Dropped = strings.TrimPrefix(r.Dropped+", "+cutPart, ", ")
		}
		c.Activity.Record(c.exchange.Account, r)
	}
}

// settle passes the tokens of a request to its limits.
func (c *clientRequest) settle(u dialect.Usage) {
	c.Observer.Counted(c.exchange, u)
	if release := c.exchange.release; release != nil {
		c.exchange.release = nil
		release(c.exchange.used(u))
	}
}

// entry returns the entry of a request in its account's activity, without its content.
func (c *clientRequest) entry(e Ending) activity.Request {
	ex := c.exchange
	key := ex.Key.Key()
	r := activity.Request{
		ID:              ex.RequestID,
		Time:            ex.Start,
		KeyID:           key.ID,
		KeyName:         key.Name,
		Person:          ex.person,
		Deployment:      ex.Deployment,
		Connector:       ex.Connector,
		Dialect:         string(ex.Operation.Dialect),
		Operation:       ex.Operation.Name(),
		Status:          e.Logged,
		ErrorClass:      string(e.Class),
		ErrorCode:       e.Code,
		Error:           e.Error,
		Reason:          ex.refusalDetail(e),
		ServerError:     e.Server,
		Streamed:        ex.Streamed,
		Dropped:         ex.Dropped,
		MaxTokens:       int(ex.MaxTokens),
		WaitMillis:      float64(ex.attempts.waitTime(c.arrived).Round(time.Millisecond).Milliseconds()),
		DurationMillis:  activity.Millis(time.Since(ex.Start)),
		InputTokens:     int(ex.Usage.PromptTokens),
		CachedTokens:    int(ex.Usage.CachedTokens),
		OutputTokens:    int(ex.Usage.CompletionTokens),
		ReasoningTokens: int(ex.Usage.ReasoningTokens),
		Estimated:       ex.Usage.Estimated,
	}
	if ex.question != nil {
		r.Operation = ex.question.Name
	}
	if media := c.media(); media != nil && ex.Usage.Amount > 0 {
		r.Amount, r.Unit = ex.Usage.Amount, string(media.Unit())
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

// setSpeed sets how fast a stream was: of its last attempt, without any wait.
func (a *attempts) setSpeed(e *Ending, tokens int64) {
	if e.First.IsZero() {
		return
	}
	e.FirstToken = max(time.Millisecond, e.First.Sub(a.began))
	if decoding := a.ended.Sub(e.First); decoding >= max(time.Millisecond, 2*e.writing) && tokens > 1 {
		e.TokensPerSecond = float64(tokens-1) / decoding.Seconds()
	}
}
