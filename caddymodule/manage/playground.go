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
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	defaultPlayTokens = 1024
	maxPlayTokens     = 16384
	playTime          = 5 * time.Minute // the model may have to be loaded
	maxPlays          = 4               // at a time: of a user with keys, and of an account without
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

// Play sends a prompt to a deployment, and stores neither the prompt nor the answer. show gets the pieces of the answer
// as they arrive; it may be nil. A failure of the model is not an error of the operation.
func (s *Service) Play(ctx context.Context, p Play, show func(Piece)) (Played, error) {
	d, err := s.deployment(ctx, p.Model)
	switch {
	case err != nil:
		return Played{}, err
	case d.ModelKind() != store.ChatModel:
		return Played{}, badRequest("%q is not a chat model; choose one that is", p.Model)
	case p.Prompt == "":
		return Played{}, badRequest("the prompt is empty; enter one")
	case p.MaxTokens < 0 || p.MaxTokens > maxPlayTokens:
		return Played{}, badRequest("the token limit is %d; it must be from 1 to %d", p.MaxTokens, maxPlayTokens)
	case p.Temperature != nil && (math.IsNaN(*p.Temperature) || *p.Temperature < 0 || *p.Temperature > 2):
		return Played{}, badRequest("the temperature is %g; it must be from 0 to 2", *p.Temperature)
	}
	q := question(ctx, activity.Playground, d)
	if err := s.playWith(ctx, p.Key, q); err != nil {
		return Played{}, err
	}
	who := d.Account
	if p.Key != "" {
		who = q.Owner
	}
	if err := s.plays.enter(who); err != nil {
		return Played{}, err
	}
	defer s.plays.leave(who)
	p.MaxTokens = cmp.Or(p.MaxTokens, defaultPlayTokens)
	// A server that ignores the limit of tokens is stopped.
	r := &reply{maxPieces: 2 * p.MaxTokens, maxText: 1 << 20, show: show, now: s.now}
	limited, cancel := within(ctx, playTime)
	defer cancel()
	err = s.askMessages(limited, q, p.Prompt, p.request(), r)
	played := Played{
		Speed: r.speed(), Answer: r.text.String(), Thinking: r.thinking.String(),
		Cut: r.stop == "max_tokens" || r.pieces == r.maxPieces,
	}
	if s.owner(ctx) == "" { // members see no connectors
		played.Connector = s.connectorName(r.asked)
	}
	switch {
	case err != nil:
		played.Error = err.Error()
	case r.pieces == 0:
		played.Error = "the model's answer is empty; check that it is a chat model"
	}
	return played, nil
}

// playWith gives a request a key of the caller, as if a client had sent it. Without a key, the role must allow tests of
// models.
func (s *Service) playWith(ctx context.Context, id string, q *serve.Question) error {
	if id == "" {
		return s.May(ctx, "POST /deployments/{name}/test")
	}
	caller, ok := CallerFrom(ctx), false
	q.From, _ = netip.ParseAddr(caller.From) // a key with allowed addresses refuses an unknown one
	q.Key, ok = s.store.Credential(q.Deployment.Account, id)
	k, _ := s.store.Key(q.Deployment.Account, id)
	if !ok || k.Owner != caller.User {
		return errNoKey(id)
	}
	if why := q.Key.Refusal(q.From); why != "" {
		return faultf(ErrForbidden, "%s", dialect.RefusedKey(string(why)).Message)
	}
	if !q.Key.Allows(q.Deployment.Name) {
		return faultf(ErrForbidden, "the key %q may not use %q; its scope is %q, and its groups may restrict it", k.Name,
			q.Deployment.Name, k.Scope)
	}
	return nil
}

// request returns the request of the messages dialect, without the prompt.
func (p Play) request() map[string]any {
	request := map[string]any{"max_tokens": p.MaxTokens}
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
		return faultf(store.ErrLimit, "the console is already receiving %d answers; wait until one is complete", maxPlays)
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
