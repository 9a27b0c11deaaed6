package manage

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/window"
)

// measureBounds are the bounds of a measurement through all connectors. A server that cuts prompts processes half of
// its context window.
var measureBounds = bounds{timeout: 5 * time.Minute, maxBytes: 1 << 20}

// Measurement is what the model server behind a connector shows of its context window.
type Measurement struct {
	Connector     string `json:"connector"`                // its name
	ContextWindow int    `json:"context_window,omitempty"` // in tokens; 0: not known
	Cuts          bool   `json:"cuts,omitempty"`           // the server cuts longer prompts, and reports no error
	AtLeast       bool   `json:"at_least,omitempty"`       // it accepts the whole prompt: the window may be larger
	Text          string `json:"text"`                     // the result in words, or why the window is not known
}

// MeasureDeployment measures the context window of a deployment, within five minutes: it sends one long prompt through
// each of its connectors, one after another, bypassing the queue. A failure is not an error of the operation, nor is a
// connector that is offline.
func (s *Service) MeasureDeployment(ctx context.Context, name string) (all []Measurement, err error) {
	d, err := s.deployment(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case d.Kind == store.EmbeddingsModel:
		return nil, badRequest("%q is an embeddings model: it has no context window to measure", name)
	}
	if err := s.plays.enter(d.Account); err != nil {
		return nil, err
	}
	defer s.plays.leave(d.Account)
	ctx, cancel := context.WithTimeout(ctx, measureBounds.timeout)
	defer cancel()
	for _, id := range d.Connectors {
		all = append(all, s.measure(ctx, s.modelClient(d, store.Key{}, activity.Test, measureBounds), id))
	}
	return all, nil
}

// MeasureIdle measures the context window of a model server that may cut prompts and runs nothing, within a minute. No
// limits count that. A cloud is not measured: it charges for each token.
func (s *Service) MeasureIdle(ctx context.Context, d store.Deployment, connector string) {
	b := bounds{timeout: time.Minute, maxBytes: measureBounds.maxBytes}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	c := s.modelClient(d, store.Key{}, activity.Test, b)
	c.admit = func(context.Context, string, string, string, limits.Cost) (func(limits.Used), error) {
		return func(limits.Used) {}, nil
	}
	if !IsCloud(cmp.Or(d.Model, d.Name)) {
		s.measure(ctx, c, connector)
	}
}

// measure measures the context window of a deployment through one of its connectors.
func (s *Service) measure(ctx context.Context, c modelClient, connector string) Measurement {
	d := c.deployment
	c.deployment.Connectors = []string{connector}
	var result window.Result
	err := c.route(s)
	if err == nil {
		_, err = c.post(ctx, "/v1/chat/completions", window.Prompt(c.model), func(answer []byte, err error) error {
			if refused, ok := errors.AsType[*dialect.Error](err); ok && refused.Window > 0 {
				result.Window = refused.Window
			} else if err != nil {
				return err
			} else if result = window.Read(http.StatusOK, answer); result.Window == 0 {
				return errors.New("the answer has no count of the prompt's tokens, so it does not show the context window")
			}
			known := int(result.Window)
			if result.AtLeast {
				known = 0
			}
			s.observed.Measured(&d, connector, known, result.Cuts) // before the record of the request, which updates pages
			return nil
		})
	}
	text := result.String()
	if err != nil {
		text = err.Error()
	} else if result.Cuts {
		text += "; " + window.Remedy
	}
	of, _ := s.store.Connector(connector)
	return Measurement{of.Name, int(result.Window), result.Cuts, result.AtLeast, text}
}
