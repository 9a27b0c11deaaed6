package manage

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/window"
)

// measureTime is for a measurement through all connectors. A server that cuts prompts processes half of its context
// window.
const measureTime = 5 * time.Minute

// Measurement is what the model server behind a connector shows of its context window.
type Measurement struct {
	Connector     string `json:"connector"`                // its name
	ContextWindow int    `json:"context_window,omitempty"` // in tokens; 0: not known
	Cuts          bool   `json:"cuts,omitempty"`           // the server cuts longer prompts, and reports no error
	AtLeast       bool   `json:"at_least,omitempty"`       // it accepts the whole prompt: the window may be larger
	Text          string `json:"text"`                     // the result in words, or why the window is not known
}

// MeasureDeployment measures the context window of a deployment, within five minutes: it sends one long prompt through
// each of its connectors, one after another. A failure is not an error of the operation, nor is a connector that is
// offline.
func (s *Service) MeasureDeployment(ctx context.Context, name string) (all []Measurement, err error) {
	d, err := s.deployment(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case d.ModelKind() != store.ChatModel:
		return nil, badRequest("%q is not a chat model: it has no context window to measure", name)
	}
	if err := s.plays.enter(d.Account); err != nil {
		return nil, err
	}
	defer s.plays.leave(d.Account)
	ctx, cancel := within(ctx, measureTime)
	defer cancel()
	for _, id := range d.Connectors {
		m, _ := s.measure(ctx, question(ctx, activity.Test, d), id)
		all = append(all, m)
	}
	return all, nil
}

// MeasureIdle measures the context window of a model server that may cut prompts and runs nothing, within a minute. A
// cloud is not measured: it charges for each token. again is set if other requests kept the server from being idle.
func (s *Service) MeasureIdle(ctx context.Context, d store.Deployment, connector string) (again bool) {
	if IsCloud(cmp.Or(d.Model, d.Name)) {
		return false
	}
	ctx, cancel := within(ctx, time.Minute)
	defer cancel()
	q := question(ctx, activity.Test, d)
	q.Idle = true
	_, err := s.measure(ctx, q, connector)
	return errors.Is(err, serve.ErrRequested)
}

// measure measures the context window of a deployment through one of its connectors.
func (s *Service) measure(ctx context.Context, q *serve.Question, connector string) (Measurement, error) {
	var answer serve.Whole
	var result window.Result
	q.Operation = dialect.Operation{Kind: dialect.ChatCompletions, Dialect: dialect.Chat}
	q.Body, q.Connector, q.Measures = window.Prompt(q.Deployment.Name), connector, true
	q.Done = func(err error) { // before the record of the request, which updates pages
		if refused, ok := errors.AsType[*dialect.Error](err); ok {
			result.Window = refused.Window
		} else if err == nil {
			result = window.Read(http.StatusOK, answer.Bytes())
		}
		if known := int(result.Window); known > 0 {
			if result.AtLeast {
				known = 0
			}
			s.observed.Measured(&q.Deployment, connector, known, result.Cuts)
		}
	}
	_, err := s.askExplained(ctx, q, &answer)
	text := result.String()
	switch {
	case result.Window == 0 && err != nil:
		text = err.Error()
	case result.Window == 0:
		text = "the model server did not count the prompt's tokens, so the context window cannot be measured"
	case result.Cuts:
		text += "; " + window.Remedy
	}
	of, _ := s.store.Connector(connector)
	return Measurement{of.Name, int(result.Window), result.Cuts, result.AtLeast, text}, err
}
