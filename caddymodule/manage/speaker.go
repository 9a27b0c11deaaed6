package manage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// speaker sends requests of the console to a deployment, bypassing its queue, but not the limits of the
// account. It uses the messages
// dialect, in which the answers of all model servers have the same form.
type speaker struct {
	question
	bounds
	log   *activity.Log
	admit func(ctx context.Context, account, deployment string,
		cost limits.Cost) (settle func(limits.Used), err error)
	maxOutput  int // of the account; 0: no limit
	deployment store.Deployment
	through    string // id of the connector
	operation  string // for the activity
	model      string // the upstream's name for it
	now        func() time.Time
}

// bounds limit an answer.
type bounds struct {
	wait   time.Duration // for the whole operation: the model may have to be loaded
	deltas int           // if a server ignores max_tokens
	text   int           // bytes that are kept
	answer int64         // bytes
}

func (s *Service) speaker(d store.Deployment, operation string, b bounds) speaker {
	ofAccount, _ := s.store.UsageLimits(d.Account, "")
	return speaker{
		bounds: b, log: s.activity, admit: s.admit, maxOutput: ofAccount.MaxOutputTokens,
		deployment: d, operation: operation, now: s.now,
	}
}

// Admit implements [dialect.Gateway].
func (t *speaker) Admit(string) (compat.Options, *dialect.Error) { return t.deployment.Options, nil }

// Reserve implements [dialect.Gateway].
func (*speaker) Reserve(int64) *dialect.Error { return nil }

// route finds the route of the deployment.
// A failure is recorded.
func (t *speaker) route(s *Service) error {
	d := t.deployment
	con, to, err := s.chosen(d)
	if err == nil {
		t.through = con.ID
		t.question = question{tunnel: to, connector: con.Name, limit: t.wait}
		t.upstream, t.model, err = to.Resolve(d.Name, d.Upstream, d.Model)
	}
	if err != nil {
		t.record(&reply{begin: t.now(), dialect: dialect.Messages}, err)
	}
	return err
}

// chosen returns the connector that a request to the deployment would use.
func (s *Service) chosen(d store.Deployment) (store.Connector, Tunnel, error) {
	if id, t, ok := s.tunnels.Choose(d.Connectors, tunnel.Target{Name: d.Name, Upstream: d.Upstream, Model: d.Model}); ok {
		if con, ok := s.store.Connector(id); ok {
			return con, t, nil
		}
	}
	for _, id := range slices.Backward(d.Connectors) {
		if con, ok := s.store.Connector(id); ok {
			return store.Connector{}, nil, offline(con.Name)
		}
	}
	return store.Connector{}, nil, errors.New("the deployment's connector was removed; register the deployment again")
}

// reply is the answer of a model, possibly incomplete.
type reply struct {
	bounds
	show        func(Piece) // may be nil
	begin       time.Time   // of the request
	dialect     dialect.Dialect
	sent        time.Time // to the model; zero: limits have refused it
	usage       dialect.Usage
	written     strings.Builder
	thought     strings.Builder
	pieces      int       // of text or thoughts
	first, last time.Time // when they arrived
	tokens      int       // 0: the server did not count them

	calls     int    // of tools
	tool      string // name of the first one called
	arguments strings.Builder
	stop      string // reason of the end
}

// ask sends a request of the messages dialect, with text as the first message, reads the answer
// until it is complete or long enough, and records both. show gets its pieces; it may be nil. The
// request counts for the limits of the account.
func (t *speaker) ask(ctx context.Context, text string, request map[string]any, show func(Piece)) (*reply, error) {
	r := &reply{bounds: t.bounds, show: show, begin: t.now(), dialect: dialect.Messages}
	call, data, err := t.request(ctx, text, request)
	if err != nil {
		t.record(r, err)
		return r, err
	}
	cost := limits.Cost{Input: int64(len(data) / dialect.BytesPerToken), Output: call.OutputLimit()}
	err = t.counted(ctx, r, cost, func() error { return t.exchange(ctx, r, call, data) })
	return r, err
}

// counted has a request sent once the limits of the account allow it, and records both.
func (t *speaker) counted(ctx context.Context, r *reply, cost limits.Cost, send func() error) error {
	settle, err := t.admit(ctx, t.deployment.Account, t.deployment.Name, cost)
	if err != nil {
		t.record(r, err)
		return err
	}
	var used limits.Used
	defer func() { settle(used) }()
	r.sent = t.now()
	err = send()
	used = t.record(r, err)
	return err
}

// request returns a request, and its body for the model server.
func (t *speaker) request(ctx context.Context, text string, request map[string]any) (dialect.Call, []byte, error) {
	request["model"] = t.model
	request["messages"] = []any{map[string]any{"role": "user", "content": text}}
	data, err := json.Marshal(request)
	if err != nil {
		return nil, nil, err
	}
	call, fault := dialect.Decode(dialect.Operation{Kind: dialect.CreateMessage, Dialect: dialect.Messages}, data,
		&dialect.Env{Context: ctx, Now: t.now, NewID: dialect.NewID, Gateway: t})
	if fault != nil {
		return nil, nil, fault
	}
	if t.maxOutput > 0 {
		call.LimitOutput(int64(t.maxOutput))
	}
	data, err = io.ReadAll(call.Body(t.model))
	return call, data, err
}

func (t *speaker) exchange(ctx context.Context, r *reply, call dialect.Call, data []byte) error {
	// Until the server counts.
	r.usage = dialect.Usage{PromptTokens: int64(len(data) / dialect.BytesPerToken), Estimated: true}
	answer, err := t.do(ctx, http.MethodPost, "/v1/chat/completions", data)
	if err != nil {
		if ctx.Err() == nil { // otherwise a model may process it
			r.usage = dialect.Usage{}
		}
		return err
	}
	defer answer.Body.Close()
	var fault *dialect.Error
	body := io.LimitReader(answer.Body, t.answer)
	if !call.Streamed() || link.HasMediaType(answer.Header, "application/json") {
		if data, err = io.ReadAll(body); err != nil {
			return t.explain(ctx, err)
		}
		if data, fault = dialect.ReplayAsStream(data); fault != nil {
			return shown(fault)
		}
		body = bytes.NewReader(data)
	}
	return t.read(ctx, r, call.NewStream(), body)
}

// read reads a stream into a reply. What was written of a broken one is used, too.
func (t *speaker) read(ctx context.Context, r *reply, stream dialect.Stream, body io.Reader) error {
	buf := make([]byte, 32<<10)
	var broken error
	for broken == nil && r.pieces < r.deltas && !stream.Done() {
		n, err := body.Read(buf)
		r.events(stream.Feed(buf[:n]), t.now())
		if err == io.EOF {
			r.events(stream.End(nil), t.now())
		} else if err != nil && !stream.Done() {
			broken = t.explain(ctx, err)
		}
	}
	usage, counted := stream.Usage()
	if counted {
		r.tokens = int(usage.CompletionTokens)
	}
	if usage.PromptTokens == 0 {
		usage.PromptTokens, counted = r.usage.PromptTokens, false
	}
	r.usage, r.usage.Estimated = usage, !counted
	if fault := stream.Err(); broken == nil && fault != nil {
		return shown(fault)
	}
	return broken
}

// events reads events of the messages dialect.
func (r *reply) events(events []byte, now time.Time) {
	for line := range bytes.Lines(events) {
		var event struct {
			Block struct{ Type, Name string } `json:"content_block"`
			Delta struct {
				Text, Thinking string
				Arguments      string `json:"partial_json"`
				Stop           string `json:"stop_reason"`
			}
		}
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok || json.Unmarshal(data, &event) != nil || r.pieces == r.deltas {
			continue
		}
		if event.Block.Type == "tool_use" {
			r.calls++
			r.tool = cmp.Or(r.tool, event.Block.Name)
		}
		if r.calls == 1 {
			r.arguments.WriteString(event.Delta.Arguments)
		}
		r.stop = cmp.Or(r.stop, event.Delta.Stop)
		if event.Delta.Text == "" && event.Delta.Thinking == "" {
			continue
		}
		if r.last = now; r.pieces == 0 {
			r.first = now
		}
		r.pieces++
		if r.written.Len() < r.text {
			r.written.WriteString(event.Delta.Text)
		}
		if r.thought.Len() < r.text {
			r.thought.WriteString(event.Delta.Thinking)
		}
		if r.show != nil {
			r.show(Piece{event.Delta.Text, event.Delta.Thinking})
		}
	}
}

// record adds a request to the activity, as one of the console, and returns what it has used.
func (t *speaker) record(r *reply, err error) limits.Used {
	now := t.now()
	entry := activity.Request{
		ID: dialect.NewRequestID(), Time: r.begin, Deployment: t.deployment.Name, Connector: t.through,
		Dialect: string(r.dialect), Operation: t.operation, Status: http.StatusOK, Streamed: r.dialect == dialect.Messages,
		DurationMillis: activity.Millis(now.Sub(r.begin)),
		InputTokens:    int(r.usage.PromptTokens), CachedTokens: int(r.usage.CachedTokens),
		OutputTokens: int(r.usage.CompletionTokens), ReasoningTokens: int(r.usage.ReasoningTokens),
		Estimated: r.usage.Estimated,
	}
	var used limits.Used
	if !r.sent.IsZero() {
		entry.WaitMillis = float64(r.sent.Sub(r.begin).Round(time.Millisecond).Milliseconds())
	}
	if r.usage.PromptTokens > 0 {
		entry.BusyMillis = activity.Millis(now.Sub(r.sent))
		used = limits.Used{
			Requests: 1, Tokens: r.usage.PromptTokens + r.usage.CompletionTokens, Output: r.usage.CompletionTokens,
			BusyMillis: int64(entry.BusyMillis),
		}
	}
	if r.pieces > 0 {
		entry.FirstTokenMillis = activity.Millis(r.first.Sub(r.begin))
	}
	var fault *dialect.Error
	switch {
	case errors.As(err, &fault):
		entry.Status, entry.ErrorClass = fault.HTTPStatus(r.dialect), string(fault.Class())
		entry.ErrorCode, entry.Error = fault.Logged()
	case errors.Is(err, context.Canceled):
		entry.Status, entry.ErrorClass, entry.ErrorCode,
			entry.Error = activity.StatusClientGone, activity.CallerError, "client_left", sentence(err)
	case err != nil:
		entry.Status, entry.ErrorClass, entry.ErrorCode,
			entry.Error = http.StatusBadGateway, activity.UpstreamError, "upstream_unreachable", sentence(err)
	}
	t.log.Record(t.deployment.Account, entry)
	return used
}

// sentence returns the text of an error with a capital letter and a full stop.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// Piece is a part of an answer, of either kind.
type Piece struct {
	Text     string `json:"text,omitempty"`
	Thinking string `json:"thinking,omitempty"`
}

// Pace is how fast a model answered.
type Pace struct {
	FirstTokenMillis float64 `json:"first_token_ms"`
	TokensPerSecond  float64 `json:"tokens_per_second"`
	Tokens           int     `json:"tokens"`
}

// pace returns the pace, also that of an incomplete answer.
func (r *reply) pace() Pace {
	tokens := cmp.Or(r.tokens, r.pieces)
	p := Pace{Tokens: tokens}
	if r.pieces == 0 {
		return p
	}
	p.FirstTokenMillis = float64(r.first.Sub(r.sent).Microseconds()) / 1000
	// The first token took the time of the prompt, which is not related to the
	// pace of the others. When all came at once, nothing else is known.
	took := r.last.Sub(r.first)
	if r.pieces == 1 || tokens == 1 {
		took = r.last.Sub(r.sent)
	} else {
		tokens--
	}
	if took > 0 {
		p.TokensPerSecond = float64(tokens) / took.Seconds()
	}
	return p
}
