package manage

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	defaultPlayTokens = 1024
	maxPlayTokens     = 16384
	maxPlays          = 4 // of an account at a time
)

// Play is a request of the playground.
type Play struct {
	Model       string // name of the deployment
	System      string // may be empty
	Prompt      string
	Temperature *float64 // nil: the model server's
	MaxTokens   int      // 0: 1024
	Stop        []string
}

// Played is the answer to [Play].
type Played struct {
	Speed
	Connector string `json:"connector,omitempty"` // its name
	Answer    string `json:"-"`
	Thinking  string `json:"-"`
	// Cut reports whether the model would have written more.
	Cut bool `json:"cut"`
	// Error is why the answer is incomplete or missing.
	Error string `json:"error,omitempty"`
}

// Play sends a prompt to a deployment, bypassing its queue, and stores neither the prompt nor the answer. show gets
// the pieces of the answer as they arrive; it may be nil. A failure of the model is not an error of the operation.
func (s *Service) Play(ctx context.Context, p Play, show func(Piece)) (Played, error) {
	d, err := s.deployment(ctx, p.Model)
	switch {
	case err != nil:
		return Played{}, err
	case d.Kind == store.EmbeddingsModel:
		return Played{}, badRequest("%q is an embeddings model: it writes no answers", p.Model)
	case p.Prompt == "":
		return Played{}, badRequest("the prompt is empty; write one")
	case p.MaxTokens < 0 || p.MaxTokens > maxPlayTokens:
		return Played{}, badRequest("the limit of tokens is %d; it must be 1 to %d", p.MaxTokens, maxPlayTokens)
	case p.Temperature != nil && (math.IsNaN(*p.Temperature) || *p.Temperature < 0 || *p.Temperature > 2):
		return Played{}, badRequest("the temperature is %g; it must be 0 to 2", *p.Temperature)
	}
	if err := s.plays.enter(d.Account); err != nil {
		return Played{}, err
	}
	defer s.plays.leave(d.Account)
	if p.MaxTokens == 0 {
		p.MaxTokens = defaultPlayTokens
	}
	// A server that ignores the limit of tokens is stopped.
	b := bounds{timeout: 5 * time.Minute, maxPieces: 2 * p.MaxTokens, maxText: 1 << 20, maxBytes: 32 << 20}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	c := s.modelClient(d, activity.Playground, b)
	if err := c.route(s); err != nil {
		return Played{Error: err.Error()}, nil
	}
	r, err := c.ask(ctx, p.Prompt, p.request(), show)
	played := Played{
		Speed: r.speed(), Connector: c.connector, Answer: r.text.String(), Thinking: r.thinking.String(),
		Cut: r.stop == "max_tokens" || r.pieces == r.maxPieces,
	}
	switch {
	case err != nil:
		played.Error = err.Error()
	case r.pieces == 0:
		played.Error = "the model's answer is empty; is it a chat model?"
	}
	return played, nil
}

// request returns the request of the messages dialect, without the prompt.
func (p Play) request() map[string]any {
	request := map[string]any{"max_tokens": p.MaxTokens, "stream": true}
	if p.System != "" {
		request["system"] = p.System
	}
	if p.Temperature != nil {
		request["temperature"] = *p.Temperature
	}
	if len(p.Stop) > 0 {
		request["stop_sequences"] = p.Stop
	}
	return request
}

// plays counts the running answers of the playground, and measurements, by account.
type plays struct {
	mu      sync.Mutex
	running map[string]int
}

// enter fails if one more may not run. Otherwise, leave must be called.
func (p *plays) enter(account string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[account] >= maxPlays {
		return faultf(store.ErrLimit, "%d answers for the console are being written in this account; wait until one "+
			"has ended", maxPlays)
	}
	if p.running == nil {
		p.running = make(map[string]int)
	}
	p.running[account]++
	return nil
}

func (p *plays) leave(account string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[account]--; p.running[account] == 0 {
		delete(p.running, account)
	}
}
