package manage

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
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

// SourceText says how a context window is known.
func SourceText(source observed.Source) string {
	switch source {
	case observed.Option:
		return "set for this model"
	case observed.Listed:
		return "the server lists it"
	case observed.Refusal:
		return "learned from a refused prompt"
	case observed.Cut:
		return "learned from cut prompts"
	default:
		return string(source)
	}
}

// MeasureDeployment is a request of [Service.MeasureDeployment].
type MeasureDeployment struct {
	Name      string `json:"-" path:"record"`
	Connector string `json:"connector" need:"filled" help:"One of its connectors, by id or name; all that are online by default"`
}

// Measurement is what the model server behind a connector shows of its context window.
type Measurement struct {
	Connector string `json:"connector"` // its name
	// ContextWindow is the context window in tokens; 0: not known.
	ContextWindow int `json:"context_window,omitempty"`
	// AtLeast: the server accepts the whole prompt, so the window may be larger.
	AtLeast bool `json:"at_least,omitempty"`
	// Cuts: the server cuts longer prompts, and reports no error. Remedy is what helps then.
	Cuts   bool   `json:"cuts,omitempty"`
	Remedy string `json:"remedy,omitempty"`
	// Error is why the window is not known.
	Error string `json:"error,omitempty"`
}

// Text returns the measurement in words.
func (m Measurement) Text() string {
	switch result := (window.Result{Window: int64(m.ContextWindow), Cuts: m.Cuts, AtLeast: m.AtLeast}).String(); {
	case m.Error != "":
		return m.Error
	case m.Remedy != "":
		return result + "; " + m.Remedy
	default:
		return result
	}
}

// MeasureDeployment measures the context window of a deployment, within five minutes: it sends one long prompt through
// each connector that is online, one after another, bypassing the queue. A failure of a model server is not an error
// of the operation.
func (s *Service) MeasureDeployment(ctx context.Context, r MeasureDeployment) ([]Measurement, error) {
	account, err := s.account(ctx)
	if err != nil {
		return nil, err
	}
	d, ok := s.store.Deployment(account, r.Name)
	switch {
	case !ok:
		return nil, faultf(store.ErrNotFound, "deployment %q not found in account %q", r.Name, account)
	case d.Kind == store.EmbeddingsModel:
		return nil, badRequest("%q is an embeddings model: it has no context window to measure", r.Name)
	case !s.plays.enter(account):
		return nil, faultf(store.ErrLimit, "%d answers for the console are being written in this account; wait until one "+
			"has ended", maxPlays)
	}
	defer s.plays.leave(account)
	through, err := s.measured(account, d, r.Connector)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, measureBounds.timeout)
	defer cancel()
	var all []Measurement
	for _, id := range through {
		if _, _, online := s.tunnels.Choose([]string{id}, tunnel.Target{}); online {
			all = append(all, s.measure(ctx, d, id))
		}
	}
	if len(all) == 0 {
		d.Connectors = through
		_, _, err = s.chooseConnector(d)
	}
	return all, err
}

// measured returns the ids of the connectors of a deployment through which a request measures.
func (s *Service) measured(account string, d store.Deployment, connector string) ([]string, error) {
	if connector == "" {
		return d.Connectors, nil
	}
	c, err := s.connector(account, connector)
	if err == nil && !slices.Contains(d.Connectors, c.ID) {
		err = badRequest("deployment %q does not use connector %q", d.Name, c.Name)
	}
	return []string{c.ID}, err
}

// measure measures the context window of a deployment through one of its connectors.
func (s *Service) measure(ctx context.Context, d store.Deployment, connector string) Measurement {
	c := s.modelClient(d, activity.Test, measureBounds)
	c.deployment.Connectors = []string{connector}
	if err := c.route(s); err != nil {
		return Measurement{Connector: c.connector, Error: err.Error()}
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
	m := Measurement{Connector: c.connector, ContextWindow: int(result.Window), Cuts: result.Cuts, AtLeast: result.AtLeast}
	if err != nil {
		m.Error = err.Error()
		return m
	}
	if m.Cuts {
		m.Remedy = window.Remedy
	}
	return m
}

// measure sends the prompt and reads the window from the answer.
func (c *modelClient) measure(ctx context.Context, r *reply, body []byte) (result window.Result, err error) {
	// This is an estimate until the server counts.
	r.usage = dialect.Usage{PromptTokens: int64(len(body) / dialect.BytesPerToken), Estimated: true}
	answer, err := c.send(ctx, http.MethodPost, "/v1/chat/completions", body)
	if err != nil {
		if ctx.Err() == nil { // otherwise a model may process it
			r.usage = dialect.Usage{}
		}
		return result, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, c.maxBytes))
	if err != nil {
		return result, c.explain(ctx, err)
	}
	result = window.Read(answer.StatusCode, data)
	switch {
	case answer.StatusCode != http.StatusOK:
		if r.usage = (dialect.Usage{}); result.Window == 0 {
			err = forUsers(dialect.FromUpstream(answer.StatusCode, answer.Header, data))
		}
	case result.Window == 0:
		err = errors.New("the answer has no count of the prompt's tokens, so it does not show the context window")
	default:
		r.count(data)
	}
	return result, err
}
