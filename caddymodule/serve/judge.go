package serve

import (
	"context"
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
)

// judgeWait is how long a judge may take, once it has its place.
const judgeWait = 20 * time.Second

// checkCalls asks the judge about the tool calls of the answer, and ends the answer with the verdicts.
func (c *clientRequest) checkCalls(r *http.Request, next Handler) *dialect.Error {
	g := c.call.Safeguard()
	if !g.Waits() {
		return nil
	}
	name := c.deployment.Options.Safeguards
	if name == compat.SafeguardsSelf {
		name = c.deployment.Name
	}
	if body := g.Request(name, false); body != nil {
		c.askJudge(g, name, body, r, next)
	}
	if c.ctx.Err() != nil {
		return c.brokenAnswer(c.ctx.Err())
	}
	if !c.mayRun() {
		return c.orEnded(dialect.StoreLostDuring())
	}
	c.answer.endWithVerdicts(g)
	return nil
}

// askJudge asks a deployment for the verdicts: as JSON, or as one word if the model server refuses the schema. The
// request has an exchange and a place of its own, for the same key.
func (c *clientRequest) askJudge(g *dialect.Safeguard, name string, body []byte, r *http.Request, next Handler) {
	w, ex := new(Whole), NewExchange()
	ex.authenticated, ex.Operation, ex.Model = c.exchange.authenticated, dialect.Judging, name
	j := &clientRequest{
		Translator: c.Translator, Backend: c.Backend, ctx: c.ctx,
		modelRequest: modelRequest{exchange: ex, answer: &answer{w: w}, judge: true},
	}
	j.memory.reservation = ex.reservation()
	derr := errCrashed // after a panic, which is no verdict
	defer func() {
		if j.crashed(recover()); derr != nil {
			j.answer.failure, j.answer.status = derr, derr.HTTPStatus(ex.Operation.Dialect)
		}
		j.end()
		c.exchange.judged = ex.used(ex.Usage) // the judge's usage is added to the client's
	}()
	d, ok := c.Store.Deployment(ex.Account, name)
	if !ok {
		derr = dialect.JudgeGone(name)
		g.Decide(nil, false, derr)
		return
	}
	j.assign(d)
	g.Terse = !ex.Key.Scope().Allows(name)
	r = r.WithContext(context.WithValue(c.ctx, exchangeKey{}, ex))
	ask := func(body []byte) *dialect.Error {
		if derr := j.decode(body); derr != nil {
			return derr
		}
		return j.forward(w, r, next)
	}
	oneWord := false
	if derr = ask(body); derr != nil && derr.Kind == dialect.KindInvalidRequest {
		oneWord = true
		derr = ask(g.Request(name, oneWord))
	}
	if derr == nil && c.ctx.Err() != nil { // the client has left
		return
	}
	if derr == nil {
		derr = j.checkPromptRead()
	}
	if !g.Decide(w.Bytes(), oneWord, derr) && derr == nil {
		derr = dialect.JudgeUnclear(name)
	}
}

// checkPromptRead returns an error unless the judge's model server has surely read the whole prompt: the rules or the
// task may be missing.
func (c *clientRequest) checkPromptRead() *dialect.Error {
	if c.exchange.Usage.Estimated || !c.measure() {
		return dialect.JudgeUnclear(c.deployment.Name)
	}
	n := int(promptTokens(c.exchange.Usage))
	if size, _ := c.sizeThrough(c.exchange.Connector); size.Doubt(n) == tokens.Cut {
		return dialect.PromptTooLong(size.Known+size.Rest, n, true)
	}
	return nil
}
