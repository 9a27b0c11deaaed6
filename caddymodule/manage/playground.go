package manage

import (
	"cmp"
	"context"
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	defaultPlayTokens = 1024
	maxPlayTokens     = 16384
	maxPlays          = 4 // at a time: of a user with keys, and of an account without
)

// Play is a request of the playground.
type Play struct {
	Model       string // name of the deployment
	Key         string // id of a key of the caller, for which the request counts; "": none, for admins
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

// Play sends a prompt to a deployment, and stores neither the prompt nor the answer. Without a key, the prompt
// bypasses the queue. show gets the pieces of the answer as they arrive; it may be nil. A failure of the model is not
// an error of the operation.
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
	ctx, key, end, err := s.playWith(ctx, p.Key, d)
	if err != nil {
		return Played{}, err
	}
	defer end()
	who := cmp.Or(key.Owner, d.Account)
	if err := s.plays.enter(who); err != nil {
		return Played{}, err
	}
	defer s.plays.leave(who)
	if p.MaxTokens == 0 {
		p.MaxTokens = defaultPlayTokens
	}
	// A server that ignores the limit of tokens is stopped.
	b := bounds{timeout: 5 * time.Minute, maxPieces: 2 * p.MaxTokens, maxText: 1 << 20, maxBytes: 32 << 20}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	c := s.modelClient(d, key, activity.Playground, b)
	if err := c.route(s); err != nil {
		return Played{Error: err.Error()}, nil
	}
	r, err := c.ask(ctx, p.Prompt, p.request(), show)
	if s.owner(ctx) != "" { // members see no connectors
		c.connector = ""
	}
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

// playWith begins a request with a key of the caller, as if a client had sent it: the context ends when the key no
// longer allows the request. end must be called in the end. Without a key, the role must allow tests of models.
func (s *Service) playWith(ctx context.Context, id string, d store.Deployment) (
	playing context.Context, k store.Key, end func(), err error,
) {
	if id == "" {
		return ctx, k, func() {}, s.May(ctx, "POST /deployments/{name}/test")
	}
	caller := CallerFrom(ctx)
	key, ok := s.store.Credential(d.Account, id)
	if k, _ = s.store.Key(d.Account, id); !ok || k.Owner != caller.User {
		return ctx, k, nil, errNoKey(id)
	}
	from, _ := netip.ParseAddr(caller.From) // a key with allowed addresses refuses an unknown one
	if why := key.Refusal(from); why != "" {
		return ctx, k, nil, faultf(ErrForbidden, "%s", dialect.RefusedKey(string(why)).Message)
	}
	playing, cancel := context.WithCancelCause(ctx)
	call := key.Begin(from, func(why store.Refusal) { cancel(dialect.EndedKey(string(why))) })
	end = func() { call.End(); cancel(nil) }
	if err = s.store.Serving(); err == nil && !call.AllowModel(d.Name) { // after Begin: see [store.Store.CutRequests]
		err = faultf(ErrForbidden, "the key %q is not for %q; its scope is %q", k.Name, d.Name, k.Scope)
	}
	if err != nil {
		end()
		return ctx, k, nil, err
	}
	s.store.Touch(key.LiveKey)
	return playing, k, end, nil
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

// plays counts the running answers of the playground, and measurements: with keys by user, others by account.
type plays struct {
	mu      sync.Mutex
	running map[string]int
}

// enter fails if one more may not run. Otherwise, leave must be called.
func (p *plays) enter(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[id] >= maxPlays {
		return faultf(store.ErrLimit, "%d answers for the console are being written; wait until one has ended", maxPlays)
	}
	if p.running == nil {
		p.running = make(map[string]int)
	}
	p.running[id]++
	return nil
}

func (p *plays) leave(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[id]--; p.running[id] == 0 {
		delete(p.running, id)
	}
}
