package manage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// modelClient sends requests of the console to a deployment. Without a key it bypasses the queue, but not the limits
// of the account. It uses the messages dialect, in which the answers of all model servers have the same form.
type modelClient struct {
	upstreamCall
	bounds
	log   *activity.Log
	admit func(ctx context.Context, account, key, deployment string,
		cost limits.Cost) (settle func(limits.Used), err error)
	maxOutput   int       // of the account and the key; 0: no limit
	key         store.Key // zero: none
	deployment  store.Deployment
	connectorID string
	operation   string // for the activity
	model       string // the upstream's name for it
	now         func() time.Time
}

// bounds limit an answer.
type bounds struct {
	timeout   time.Duration // for the whole operation: the model may have to be loaded
	maxPieces int           // if a server ignores max_tokens
	maxText   int           // bytes that are kept
	maxBytes  int64         // bytes
}

// modelClient returns a client. key is the zero value for requests without one.
func (s *Service) modelClient(d store.Deployment, key store.Key, operation string, b bounds) modelClient {
	ofAccount, ofKey := s.store.UsageLimits(d.Account, key.ID)
	return modelClient{
		bounds: b, log: s.activity, admit: s.admit, key: key,
		maxOutput:  dialect.Lowest(ofAccount.MaxOutputTokens, ofKey.MaxOutputTokens),
		deployment: d, operation: operation, now: s.now,
	}
}

// route finds the route of the deployment, and records a failure.
func (c *modelClient) route(s *Service) error {
	d := c.deployment
	con, tun, err := s.chooseConnector(d)
	if err == nil {
		c.connectorID = con.ID
		c.upstreamCall = upstreamCall{tunnel: tun, connector: con.Name, timeout: c.bounds.timeout}
		c.upstream, c.model, err = tun.Resolve(d.Name, d.Upstream, d.Model)
	}
	if err != nil {
		c.record(&reply{begin: c.now(), dialect: dialect.Messages}, err)
	}
	return err
}

// chosen returns the connector that a request to the deployment would use.
func (s *Service) chooseConnector(d store.Deployment) (store.Connector, Tunnel, error) {
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
	text        strings.Builder
	thinking    strings.Builder
	pieces      int       // of text or thoughts
	first, last time.Time // when they arrived
	tokens      int       // 0: the server did not count them

	toolCalls int
	toolName  string // of the first call
	arguments strings.Builder
	stop      string // reason of the end
}

// ask sends a request of the messages dialect, with text as the first message, reads the answer
// until it is complete or long enough, and records both. show gets its pieces; it may be nil. The
// request counts for the limits of the account.
func (c *modelClient) ask(ctx context.Context, text string, request map[string]any, show func(Piece)) (*reply, error) {
	r := &reply{bounds: c.bounds, show: show, begin: c.now(), dialect: dialect.Messages}
	call, data, err := c.request(ctx, text, request)
	if err != nil {
		c.record(r, err)
		return r, err
	}
	cost := limits.Cost{Input: int64(len(data) / dialect.BytesPerToken), Output: call.OutputLimit()}
	err = c.limited(ctx, r, cost, func() error { return c.exchange(ctx, r, call, data) })
	return r, err
}

// limited calls send once the limits of the account allow the request, and records the request.
func (c *modelClient) limited(ctx context.Context, r *reply, cost limits.Cost, send func() error) error {
	settle, err := c.admit(ctx, c.deployment.Account, c.key.ID, c.deployment.Name, cost)
	if err != nil {
		c.record(r, err)
		return err
	}
	var used limits.Used
	defer func() { settle(used) }()
	r.sent = c.now()
	err = send()
	used = c.record(r, err)
	return err
}

// post sends a request without a stream, once the limits of the account allow it, and records it. read gets the
// body of the answer, or the error; what it returns is the result of the request.
func (c *modelClient) post(ctx context.Context, path string, body []byte,
	read func(answer []byte, err error) error,
) (*reply, error) {
	r := &reply{dialect: dialect.Chat, begin: c.now()}
	prompt := int64(len(body) / dialect.BytesPerToken)
	return r, c.limited(ctx, r, limits.Cost{Input: prompt}, func() error {
		answer, err := c.do(ctx, http.MethodPost, path, body)
		if err == nil || ctx.Err() != nil { // a model may process it: this is an estimate until the server counts
			r.usage = dialect.Usage{PromptTokens: prompt, Estimated: true}
		}
		if err != nil {
			return read(nil, err)
		}
		defer answer.Body.Close()
		data, err := io.ReadAll(io.LimitReader(answer.Body, c.maxBytes))
		if err != nil {
			return read(nil, c.explain(ctx, err))
		}
		var counted struct {
			Usage struct {
				PromptTokens int64 `json:"prompt_tokens"`
			}
		}
		_ = json.Unmarshal(data, &counted) // otherwise the estimate stays
		// Other counts would distort the sums of the account.
		if n := counted.Usage.PromptTokens; 0 < n && n <= limits.MaxLimit {
			r.usage = dialect.Usage{PromptTokens: n}
		}
		return read(data, nil)
	})
}

// request returns a request, and its body for the model server.
func (c *modelClient) request(ctx context.Context, text string, request map[string]any) (dialect.Call, []byte, error) {
	request["model"] = c.model
	request["messages"] = []any{map[string]any{"role": "user", "content": text}}
	data, err := json.Marshal(request)
	if err != nil {
		return nil, nil, err
	}
	head, fault := dialect.ReadHead(dialect.Operation{Kind: dialect.CreateMessage, Dialect: dialect.Messages}, data,
		&dialect.Env{Context: ctx, Now: c.now, NewID: dialect.NewID})
	if fault != nil {
		return nil, nil, fault
	}
	call, fault := head.Decode(c.deployment.Options)
	if fault != nil {
		return nil, nil, fault
	}
	if c.maxOutput > 0 {
		call.LimitOutput(int64(c.maxOutput))
	}
	data, err = io.ReadAll(call.Body(c.model))
	return call, data, err
}

func (c *modelClient) exchange(ctx context.Context, r *reply, call dialect.Call, data []byte) error {
	// This is an estimate until the server counts.
	r.usage = dialect.Usage{PromptTokens: int64(len(data) / dialect.BytesPerToken), Estimated: true}
	answer, err := c.do(ctx, http.MethodPost, "/v1/chat/completions", data)
	if err != nil {
		if ctx.Err() == nil { // otherwise a model may process it
			r.usage = dialect.Usage{}
		}
		return err
	}
	defer answer.Body.Close()
	var fault *dialect.Error
	body := io.LimitReader(answer.Body, c.maxBytes)
	if !call.Streamed() || link.HasMediaType(answer.Header, "application/json") {
		if data, err = io.ReadAll(body); err != nil {
			return c.explain(ctx, err)
		}
		if data, fault = dialect.ReplayAsStream(data); fault != nil {
			return forUsers(fault)
		}
		body = bytes.NewReader(data)
	}
	return c.read(ctx, r, call.NewStream(), body)
}

// read reads a stream into a reply, which keeps the beginning of a broken stream.
func (c *modelClient) read(ctx context.Context, r *reply, stream dialect.Stream, body io.Reader) error {
	buf := make([]byte, 32<<10)
	var broken error
	for broken == nil && r.pieces < r.maxPieces && !stream.Done() {
		n, err := body.Read(buf)
		r.events(stream.Feed(buf[:n]), c.now())
		if err == io.EOF {
			r.events(stream.End(nil), c.now())
		} else if err != nil && !stream.Done() {
			broken = c.explain(ctx, err)
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
		return forUsers(fault)
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
		if !ok || json.Unmarshal(data, &event) != nil || r.pieces == r.maxPieces {
			continue
		}
		if event.Block.Type == "tool_use" {
			r.toolCalls++
			r.toolName = cmp.Or(r.toolName, event.Block.Name)
		}
		if r.toolCalls == 1 {
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
		if r.text.Len() < r.maxText {
			r.text.WriteString(event.Delta.Text)
		}
		if r.thinking.Len() < r.maxText {
			r.thinking.WriteString(event.Delta.Thinking)
		}
		if r.show != nil {
			r.show(Piece{event.Delta.Text, event.Delta.Thinking})
		}
	}
}

// record adds a request of the console to the activity, and returns its usage.
func (c *modelClient) record(r *reply, err error) limits.Used {
	now := c.now()
	entry := activity.Request{
		ID: dialect.NewRequestID(), Time: r.begin, KeyID: c.key.ID, KeyName: c.key.Name,
		Deployment: c.deployment.Name, Connector: c.connectorID,
		Dialect: string(r.dialect), Operation: c.operation, Status: http.StatusOK, Streamed: r.dialect == dialect.Messages,
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
		entry.FirstTokenMillis = activity.Millis(r.first.Sub(r.sent))
	}
	if r.last.After(r.first) {
		entry.TokensPerSecond = math.Round(10*r.speed().TokensPerSecond) / 10
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
	c.log.Record(c.deployment.Account, entry)
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

// Speed is how fast a model answered.
type Speed struct {
	FirstTokenMillis float64 `json:"first_token_ms"`
	TokensPerSecond  float64 `json:"tokens_per_second"`
	Tokens           int     `json:"tokens"`
}

// speed returns the speed of an answer, which may be incomplete.
func (r *reply) speed() Speed {
	tokens := cmp.Or(r.tokens, r.pieces)
	s := Speed{Tokens: tokens}
	if r.pieces == 0 {
		return s
	}
	s.FirstTokenMillis = float64(r.first.Sub(r.sent).Microseconds()) / 1000
	// The first token took the time of the prompt, which says nothing about the other tokens. If all tokens came at
	// once, it is the only time known.
	took := r.last.Sub(r.first)
	if r.pieces == 1 || tokens == 1 {
		took = r.last.Sub(r.sent)
	} else {
		tokens--
	}
	if took > 0 {
		s.TokensPerSecond = float64(tokens) / took.Seconds()
	}
	return s
}
