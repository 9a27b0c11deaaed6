package manage

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/observed"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/window"
)

// measureBounds are the bounds of a measurement through all connectors. A server that cuts prompts processes half of
// its context window.
var measureBounds = bounds{timeout: 5 * time.Minute, maxBytes: 1 << 20}

// sourceTexts say how a context window is known.
var sourceTexts = map[observed.Source]string{
	observed.Option: "set for this model", observed.Listed: "the server lists it", observed.Measured: "measured",
	observed.Refusal: "learned from a refused prompt", observed.Cut: "learned from cut prompts",
}

// SourceText says how a context window is known.
func SourceText(source observed.Source) string { return sourceTexts[source] }

// Measurement is what the model server behind a connector shows of its context window.
type Measurement struct {
	Connector string `json:"connector"` // its name
	// ContextWindow is the context window in tokens; 0: not known.
	ContextWindow int `json:"context_window,omitempty"`
	// Cuts: the server cuts longer prompts, and reports no error.
	Cuts bool `json:"cuts,omitempty"`
	// AtLeast: the server accepts the whole prompt, so the window may be larger.
	AtLeast bool `json:"at_least,omitempty"`
	// Text is the result in words, with what helps if it cuts prompts; or why the window is not known.
	Text string `json:"text"`
}

// MeasureDeployment measures the context window of a deployment, within five minutes: it sends one long prompt through
// each connector that is online, one after another, bypassing the queue. A failure of a model server is not an error
// of the operation.
func (s *Service) MeasureDeployment(ctx context.Context, name string) (all []Measurement, err error) {
	account, err := s.account(ctx)
	if err != nil {
		return nil, err
	}
	d, ok := s.store.Deployment(account, name)
	switch {
	case !ok:
		return nil, faultf(store.ErrNotFound, "deployment %q not found in account %q", name, account)
	case d.Kind == store.EmbeddingsModel:
		return nil, badRequest("%q is an embeddings model: it has no context window to measure", name)
	case !s.plays.enter(account):
		return nil, faultf(store.ErrLimit, "%d answers for the console are being written in this account; wait until one "+
			"has ended", maxPlays)
	}
	defer s.plays.leave(account)
	ctx, cancel := context.WithTimeout(ctx, measureBounds.timeout)
	defer cancel()
	for _, id := range d.Connectors {
		if _, _, online := s.tunnels.Choose([]string{id}, tunnel.Target{}); online {
			all = append(all, s.measure(ctx, d, id))
		}
	}
	if len(all) == 0 {
		_, _, err = s.chooseConnector(d)
	}
	return all, err
}

// measure measures the context window of a deployment through one of its connectors.
func (s *Service) measure(ctx context.Context, d store.Deployment, connector string) Measurement {
	c := s.modelClient(d, activity.Test, measureBounds)
	c.deployment.Connectors = []string{connector}
	if err := c.route(s); err != nil {
		return Measurement{Connector: c.connector, Text: err.Error()}
	}
	body, r := window.Prompt(c.model), &reply{dialect: dialect.Chat, begin: s.now()}
	var result window.Result
	cost := limits.Cost{Input: int64(len(body) / dialect.BytesPerToken), Output: 1}
	err := c.limited(ctx, r, cost, func() (err error) {
		if result, err = c.measure(ctx, r, body); err == nil && !result.AtLeast {
			s.observed.Measured(d, connector, int(result.Window), result.Cuts)
		}
		return err // the record of the request, which follows, updates pages
	})
	text := result.String()
	if err != nil {
		text = err.Error()
	} else if result.Cuts {
		text += "; " + window.Remedy
	}
	return Measurement{c.connector, int(result.Window), result.Cuts, result.AtLeast, text}
}

// measure sends the prompt and reads the window from the answer.
func (c *modelClient) measure(ctx context.Context, r *reply, body []byte) (result window.Result, err error) {
	answer, err := c.do(ctx, http.MethodPost, "/v1/chat/completions", body)
	if refused, ok := errors.AsType[*dialect.Error](err); ok && refused.Window > 0 {
		return window.Result{Window: refused.Window}, nil
	}
	if err == nil || ctx.Err() != nil { // a model may process it: this is an estimate until the server counts
		r.usage = dialect.Usage{PromptTokens: int64(len(body) / dialect.BytesPerToken), Estimated: true}
	}
	if err != nil {
		return result, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, c.maxBytes))
	if err != nil {
		return result, c.explain(ctx, err)
	}
	r.count(data)
	if result = window.Read(http.StatusOK, data); result.Window == 0 {
		err = errors.New("the answer has no count of the prompt's tokens, so it does not show the context window")
	}
	return result, err
}
