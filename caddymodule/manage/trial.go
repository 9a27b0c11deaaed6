package manage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

const (
	trialWait      = 60 * time.Second // for the whole test: the model may have to be loaded
	trialTokens    = 64
	trialDeltas    = 4 * trialTokens // if a server ignores trialTokens
	toolTokens     = 512             // a model may think before it calls a tool
	maxTrialAnswer = 1 << 20         // bytes
	maxTrialText   = 400             // shown bytes
	bytesPerToken  = 4               // of a prompt that the server does not count
)

// The results of the tool test.
const (
	ToolsWork    = "works"
	ToolsNo      = "no"
	ToolsUnknown = "unknown"
)

// TestResult is the result of [Service.TestDeployment].
type TestResult struct {
	OK               bool    `json:"ok"`
	FirstTokenMillis float64 `json:"first_token_ms"`
	TokensPerSecond  float64 `json:"tokens_per_second"`
	Tokens           int     `json:"tokens"`
	Tools            string  `json:"tools"` // "works", "no" or "unknown"
	// ToolsReason is why tools do not work, or why that is not known.
	ToolsReason string `json:"tools_reason,omitempty"`
	// Connector is the name of the used connector, empty if none is online.
	Connector string `json:"connector,omitempty"`
	// Answer is the beginning of the model's answer.
	Answer string `json:"answer"`
	// Error is why the completion failed, empty if OK.
	Error string `json:"error,omitempty"`
}

// TestDeployment runs a short completion on a deployment, bypassing its queue, and then
// requests a tool call, within one minute. A failure of the model is not an error of
// the operation.
func (s *Service) TestDeployment(ctx context.Context, name string) (TestResult, error) {
	account, err := s.account(ctx)
	if err != nil {
		return TestResult{}, err
	}
	d, ok := s.store.Deployment(account, name)
	if !ok {
		return TestResult{}, faultf(store.ErrNotFound, "deployment %q not found in account %q", name, account)
	}
	ctx, cancel := context.WithTimeout(ctx, trialWait)
	defer cancel()
	t := trial{result: TestResult{Tools: ToolsUnknown}, log: s.activity, deployment: d, operation: activity.Test, now: s.now}
	if err := t.run(ctx, s); err != nil {
		t.result.Error = err.Error()
		return t.result, nil
	}
	t.result.OK = true
	t.result.Tools, t.result.ToolsReason = t.tools(ctx)
	return t.result, nil
}

// trial is a test of a deployment. It uses the messages dialect, in which the answers
// of all model servers have the same form.
type trial struct {
	question
	log        *activity.Log
	deployment store.Deployment
	through    string // id of the connector
	operation  string // for the activity
	model      string // the upstream's name for it
	now        func() time.Time
	result     TestResult
}

// Admit implements [dialect.Gateway].
func (t *trial) Admit(string) (compat.Options, *dialect.Error) { return t.deployment.Options, nil }

// Hold implements [dialect.Gateway].
func (*trial) Hold(int64) *dialect.Error { return nil }

// run finds the route of the deployment and requests a sentence.
func (t *trial) run(ctx context.Context, s *Service) error {
	if err := t.route(s); err != nil {
		t.record(&reply{begin: t.now()}, err)
		return err
	}
	return t.complete(ctx)
}

// route finds the route of the deployment.
func (t *trial) route(s *Service) error {
	d := t.deployment
	con, to, err := s.chosen(d)
	if err != nil {
		return err
	}
	upstream, name, err := to.Resolve(d.Name, d.Upstream, d.Model)
	if err != nil {
		return err
	}
	t.result.Connector, t.through, t.model = con.Name, con.ID, name
	t.question = question{tunnel: to, connector: con.Name, upstream: upstream, limit: trialWait}
	return nil
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
	begin       time.Time // of the request
	usage       dialect.Usage
	text        strings.Builder
	deltas      int       // pieces of text or thoughts
	first, last time.Time // when they arrived
	tokens      int       // 0: the server did not count them

	calls     int    // of tools
	tool      string // name of the first one called
	arguments strings.Builder
	stop      string // reason of the end
}

// ask sends a request of the messages dialect, with text as the first message, reads the answer
// until it is complete or long enough, and records both.
func (t *trial) ask(ctx context.Context, text string, request map[string]any) (*reply, error) {
	r := &reply{begin: t.now()}
	err := t.exchange(ctx, r, text, request)
	t.record(r, err)
	return r, err
}

func (t *trial) exchange(ctx context.Context, r *reply, text string, request map[string]any) error {
	request["model"] = t.model
	request["messages"] = []any{map[string]any{"role": "user", "content": text}}
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	call, fault := dialect.Decode(dialect.Operation{Kind: dialect.CreateMessage, Dialect: dialect.Messages}, data,
		&dialect.Env{Context: ctx, Now: t.now, NewID: dialect.NewID, Gateway: t})
	if fault != nil {
		return fault
	}
	if data, err = io.ReadAll(call.Body(t.model)); err != nil {
		return err
	}
	answer, err := t.do(ctx, http.MethodPost, "/v1/chat/completions", data)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	r.usage = dialect.Usage{PromptTokens: int64(len(data) / bytesPerToken), Estimated: true} // until it counts itself
	body := io.LimitReader(answer.Body, maxTrialAnswer)
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

// read reads a stream into a reply.
func (t *trial) read(ctx context.Context, r *reply, stream dialect.Stream, body io.Reader) error {
	buf := make([]byte, 32<<10)
	for r.deltas < trialDeltas && !stream.Done() {
		n, err := body.Read(buf)
		r.events(stream.Feed(buf[:n]), t.now())
		if err == io.EOF {
			r.events(stream.End(nil), t.now())
		} else if err != nil && !stream.Done() {
			return t.explain(ctx, err)
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
	if fault := stream.Err(); fault != nil {
		return shown(fault)
	}
	return nil
}

// events reads events of the messages dialect. Thinking is counted, but not shown.
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
		if !ok || json.Unmarshal(data, &event) != nil || r.deltas == trialDeltas {
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
		if r.last = now; r.deltas == 0 {
			r.first = now
		}
		r.deltas++
		if r.text.Len() < maxTrialText {
			r.text.WriteString(event.Delta.Text)
		}
	}
}

// record adds a request to the activity, as one of the console.
func (t *trial) record(r *reply, err error) {
	took := t.now().Sub(r.begin)
	entry := activity.Request{
		ID: dialect.NewRequestID(), Time: r.begin, Deployment: t.deployment.Name, Connector: t.through,
		Dialect: string(dialect.Messages), Operation: t.operation, Status: http.StatusOK, Streamed: true, DurationMillis: activity.Millis(took),
		InputTokens: int(r.usage.PromptTokens), CachedTokens: int(r.usage.CachedTokens),
		OutputTokens: int(r.usage.CompletionTokens), ReasoningTokens: int(r.usage.ReasoningTokens), Estimated: r.usage.Estimated,
	}
	if r.usage.PromptTokens > 0 {
		entry.BusyMillis = entry.DurationMillis
	}
	if r.deltas > 0 {
		entry.FirstTokenMillis = activity.Millis(r.first.Sub(r.begin))
	}
	var fault *dialect.Error
	switch {
	case errors.As(err, &fault):
		entry.Status, entry.ErrorClass = fault.HTTPStatus(dialect.Messages), string(fault.Class())
		entry.ErrorCode, entry.Error = fault.Logged()
	case errors.Is(err, context.Canceled):
		entry.Status, entry.ErrorClass, entry.ErrorCode, entry.Error = activity.StatusClientGone, activity.CallerError, "client_left", sentence(err)
	case err != nil:
		entry.Status, entry.ErrorClass, entry.ErrorCode, entry.Error = http.StatusBadGateway, activity.UpstreamError, "upstream_unreachable", sentence(err)
	}
	t.log.Record(t.deployment.Account, entry)
}

// sentence returns the text of an error with a capital letter and a full stop.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// complete requests a sentence and measures its speed.
func (t *trial) complete(ctx context.Context) error {
	r, err := t.ask(ctx, "Say hello to the person who has just set you up, in one short sentence.",
		map[string]any{"max_tokens": trialTokens, "stream": true})
	t.measure(r)
	switch {
	case err != nil || r.deltas > 0:
		return err
	case r.tokens > 0:
		return fmt.Errorf("the model produced %d tokens, but no text", r.tokens)
	}
	return errors.New("the model's answer is empty; is it a chat model?")
}

// measure sets the results, also those of an incomplete answer.
func (t *trial) measure(r *reply) {
	tokens := cmp.Or(r.tokens, r.deltas)
	t.result.Answer, t.result.Tokens = oneLine(r.text.String(), maxTrialText), tokens
	if r.deltas == 0 {
		return
	}
	t.result.FirstTokenMillis = float64(r.first.Sub(r.begin).Microseconds()) / 1000
	// The first token took the time of the prompt, which is not related to the
	// pace of the others. When all came at once, nothing else is known.
	took := r.last.Sub(r.first)
	if r.deltas == 1 || tokens == 1 {
		took = r.last.Sub(r.begin)
	} else {
		tokens--
	}
	if took > 0 {
		t.result.TokensPerSecond = float64(tokens) / took.Seconds()
	}
}

// weatherTool is the tool that the model should call.
const weatherTool = "get_weather"

// tools requests a tool call as agents do, with the choice left to the model, and
// judges the answer.
func (t *trial) tools(ctx context.Context) (works, reason string) {
	r, err := t.ask(ctx, "What is the weather in Paris now? Call the tool "+weatherTool+" to find out.", map[string]any{
		"max_tokens": toolTokens, "tool_choice": map[string]any{"type": "auto"},
		"tools": []any{map[string]any{
			"name": weatherTool, "description": "Returns the current weather in a city.",
			"input_schema": map[string]any{
				"type": "object", "required": []string{"city"},
				"properties": map[string]any{"city": map[string]any{"type": "string"}},
			},
		}},
	})
	var refused *dialect.Error
	var arguments struct {
		City string `json:"city"`
	}
	switch {
	case errors.As(err, &refused) && strings.Contains(strings.ToLower(refused.Message), "tool"):
		return ToolsNo, refused.Message
	case err != nil:
		return ToolsUnknown, err.Error()
	case r.calls == 0 && r.stop == "max_tokens":
		return ToolsUnknown, fmt.Sprintf("the model did not finish within %d tokens", toolTokens)
	case r.calls == 0:
		return ToolsNo, "the model answered with text instead of calling the tool"
	case r.tool != weatherTool:
		return ToolsNo, fmt.Sprintf("the model called %q, which is not one of its tools", oneLine(r.tool, 64))
	case json.Unmarshal([]byte(r.arguments.String()), &arguments) != nil || arguments.City == "":
		return ToolsNo, "the model called the tool with invalid arguments"
	}
	return ToolsWork, ""
}
