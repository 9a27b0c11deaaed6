package serve

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

// judgeWait is how long a judge may take.
const judgeWait = 20 * time.Second

// judged is the judge's answer, and implements http.ResponseWriter.
type judged struct {
	bytes.Buffer
	header http.Header
}

// Header implements http.ResponseWriter.
func (w *judged) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (*judged) WriteHeader(int) {}

// checkCalls asks the judge about the tool calls of the answer, and ends the answer with the verdicts. Router calls it.
func (c *clientRequest) checkCalls(send func(context.Context, *modelRequest) error) {
	g := c.call.Safeguard()
	if c.result != nil || !g.Waits() {
		return
	}
	name := c.deployment.Options.Safeguards
	if name == compat.SafeguardsSelf {
		name = c.deployment.Name
	}
	d, ok := c.Store.Deployment(c.exchange.Account, name)
	if body := g.Request(name, false); ok && body != nil {
		c.judge(d, g, body, send)
	}
	if c.ctx.Err() != nil {
		c.result = c.broken(c.ctx.Err())
		return
	}
	c.answer.conclude(g)
}

// judge asks a deployment for the verdicts: as JSON, or as one word if the model server refuses the schema. The request
// has an exchange of its own, for the same key, without a check of its scope.
func (c *clientRequest) judge(d store.Deployment, g *dialect.Safeguard, body []byte,
	send func(context.Context, *modelRequest) error,
) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, judgeWait, dialect.JudgeTimeout(d.Name))
	defer cancel()
	w, ex := &judged{header: http.Header{}}, NewExchange()
	ex.authenticated, ex.Operation, ex.Model = c.exchange.authenticated, dialect.Judging, d.Name
	ex.release = func(u limits.Used) { c.exchange.judged = u } // they are settled together
	j := &clientRequest{
		Translator: c.Translator, Backend: c.Backend, ctx: ctx,
		modelRequest: modelRequest{exchange: ex, answer: newAnswer(w)},
	}
	j.modelRequest.receive, j.reserved.reservation = j.receive, ex.reservation()
	defer func() {
		if j.crashed(recover()) {
			j.answer.crash(ex.Operation.Dialect, ex.RequestID)
		}
		if ex.Usage.PromptTokens == 0 && ex.attempts.whole() { // it cannot be counted later
			ex.Usage.PromptTokens, ex.Usage.Estimated, j.translated = j.size/dialect.BytesPerToken, true, true
		}
		j.end()
	}()
	j.assign(d)
	derr := j.ask(body, send)
	oneWord := derr != nil && derr.Kind == dialect.KindInvalidRequest
	if oneWord {
		derr = j.ask(g.Request(d.Name, true), send)
	}
	if derr != nil {
		j.answer.fail(ex.Operation.Dialect, ex.RequestID, derr)
	}
	g.Decide(w.Bytes(), oneWord, derr)
}

// ask sends a request to the judge.
func (c *clientRequest) ask(body []byte, send func(context.Context, *modelRequest) error) *dialect.Error {
	derr := c.decode(body)
	if derr == nil {
		derr = c.fit()
	}
	if derr != nil {
		return derr
	}
	if err := send(c.ctx, &c.modelRequest); err != nil {
		return c.failed(err)
	}
	return c.result
}
