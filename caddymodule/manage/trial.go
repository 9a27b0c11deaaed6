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
	Tools            string  `json:"tools"` // ToolsWork, ToolsNo or ToolsUnknown
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
	t := trial{result: TestResult{Tools: ToolsUnknown}, options: d.Options, now: s.now}
	if err := t.run(ctx, s, d); err != nil {
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
	model   string // the upstream's name for it
	options compat.Options
	now     func() time.Time
	result  TestResult

	text        strings.Builder // of the streamed answer
	deltas      int             // pieces of text or thoughts
	first, last time.Time       // when they arrived
}

// Admit implements [dialect.Gateway].
func (t *trial) Admit(string) (compat.Options, *dialect.Error) { return t.options, nil }

// Hold implements [dialect.Gateway].
func (*trial) Hold(int64) *dialect.Error { return nil }

// run finds the route of the deployment and requests a sentence.
func (t *trial) run(ctx context.Context, s *Service, d store.Deployment) error {
	con, to, err := s.chosen(d)
	if err != nil {
		return err
	}
	upstream, name, err := to.Resolve(d.Name, d.Upstream, d.Model)
	if err != nil {
		return err
	}
	t.result.Connector, t.model = con.Name, name
	t.question = question{tunnel: to, connector: con.Name, upstream: upstream, limit: trialWait}
	return t.complete(ctx)
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

// message has the fields of an answer that tests read.
type message struct {
	Content    []block `json:"content"`
	StopReason string  `json:"stop_reason"`
}

// block is a part of an answer, or a piece of one in a stream.
type block struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	Name     string          `json:"name"` // of a tool
	Input    json.RawMessage `json:"input"`
}

// ask sends a request of the messages dialect, with text as the first message. Without
// an error, the body of the answer must be closed.
func (t *trial) ask(ctx context.Context, text string, request map[string]any) (dialect.Call, *http.Response, error) {
	request["model"] = t.model
	request["messages"] = []any{map[string]any{"role": "user", "content": text}}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, nil, err
	}
	call, fault := dialect.Decode(dialect.Operation{Kind: dialect.CreateMessage, Dialect: dialect.Messages}, body,
		&dialect.Env{Context: ctx, Now: t.now, NewID: dialect.NewID, Gateway: t})
	if fault != nil {
		return nil, nil, fault
	}
	if body, err = io.ReadAll(call.Body(t.model)); err != nil {
		return nil, nil, err
	}
	answer, err := t.do(ctx, http.MethodPost, "/v1/chat/completions", body)
	return call, answer, err
}

// readMessage reads a whole answer.
func (t *trial) readMessage(ctx context.Context, call dialect.Call, body io.Reader) (answer message, usage dialect.Usage, err error) {
	data, err := io.ReadAll(io.LimitReader(body, maxTrialAnswer))
	if err != nil {
		return answer, usage, t.explain(ctx, err)
	}
	data, usage, fault := call.Answer(data)
	if fault != nil {
		return answer, usage, shown(fault)
	}
	return answer, usage, json.Unmarshal(data, &answer)
}

// complete requests a sentence and measures its speed.
func (t *trial) complete(ctx context.Context) error {
	begin := t.now()
	call, answer, err := t.ask(ctx, "Say hello to the person who has just set you up, in one short sentence.",
		map[string]any{"max_tokens": trialTokens, "stream": true})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	err = t.read(ctx, call, answer)
	counted := t.result.Tokens
	t.measure(begin)
	switch {
	case err != nil || t.deltas > 0:
		return err
	case counted > 0:
		return fmt.Errorf("the model produced %d tokens, but no text", counted)
	}
	return errors.New("the model's answer is empty; is it a chat model?")
}

// read reads a streamed answer to its end, or until it is long enough.
func (t *trial) read(ctx context.Context, call dialect.Call, answer *http.Response) error {
	if link.HasMediaType(answer.Header, "application/json") { // of a server that does not stream
		whole, usage, err := t.readMessage(ctx, call, answer.Body)
		t.count(usage, !usage.Estimated)
		for _, b := range whole.Content {
			t.add(b)
		}
		return err
	}
	stream, body, buf := call.NewStream(), io.LimitReader(answer.Body, maxTrialAnswer), make([]byte, 32<<10)
	for t.deltas < trialDeltas && !stream.Done() {
		n, err := body.Read(buf)
		t.events(stream.Feed(buf[:n]))
		if err == io.EOF {
			t.events(stream.End(nil))
		} else if err != nil && !stream.Done() {
			return t.explain(ctx, err)
		}
	}
	t.count(stream.Usage())
	if fault := stream.Err(); fault != nil {
		return shown(fault)
	}
	return nil
}

func (t *trial) count(usage dialect.Usage, counted bool) {
	if counted {
		t.result.Tokens = int(usage.CompletionTokens)
	}
}

// events adds the text in events of the messages dialect.
func (t *trial) events(events []byte) {
	for line := range bytes.Lines(events) {
		var event struct{ Delta block }
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && json.Unmarshal(data, &event) == nil && t.deltas < trialDeltas {
			t.add(event.Delta)
		}
	}
}

// add adds a delta. Thinking is counted, but not shown.
func (t *trial) add(b block) {
	if b.Text == "" && b.Thinking == "" {
		return
	}
	t.last = t.now()
	if t.deltas == 0 {
		t.first = t.last
	}
	t.deltas++
	if t.text.Len() < maxTrialText {
		t.text.WriteString(b.Text)
	}
}

// measure sets the results, also those of an incomplete answer.
func (t *trial) measure(begin time.Time) {
	r := &t.result
	r.Answer = oneLine(t.text.String(), maxTrialText)
	r.Tokens = cmp.Or(r.Tokens, t.deltas) // if the server did not count them
	if t.deltas == 0 {
		return
	}
	r.FirstTokenMillis = float64(t.first.Sub(begin).Microseconds()) / 1000
	// The first token took the time of the prompt, which is not related to the
	// pace of the others. When all came at once, nothing else is known.
	tokens, took := r.Tokens-1, t.last.Sub(t.first)
	if t.deltas == 1 || tokens == 0 {
		tokens, took = r.Tokens, t.last.Sub(begin)
	}
	if took > 0 {
		r.TokensPerSecond = float64(tokens) / took.Seconds()
	}
}

// weatherTool is the tool that the model should call.
const weatherTool = "get_weather"

// tools requests a tool call as agents do, with the choice left to the model, and
// judges the answer.
func (t *trial) tools(ctx context.Context) (works, reason string) {
	call, answer, err := t.ask(ctx, "What is the weather in Paris now? Call the tool "+weatherTool+" to find out.", map[string]any{
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
	if errors.As(err, &refused) && strings.Contains(strings.ToLower(refused.Message), "tool") {
		return ToolsNo, refused.Message
	}
	if err != nil {
		return ToolsUnknown, err.Error()
	}
	defer answer.Body.Close()
	got, _, err := t.readMessage(ctx, call, answer.Body)
	if err != nil {
		return ToolsUnknown, err.Error()
	}
	return judge(got)
}

// judge judges an answer that should call weatherTool.
func judge(answer message) (works, reason string) {
	call, called := find(answer.Content, func(b block) bool { return b.Type == "tool_use" })
	var arguments struct {
		City string `json:"city"`
	}
	switch {
	case !called && answer.StopReason == "max_tokens":
		return ToolsUnknown, fmt.Sprintf("the model did not finish within %d tokens", toolTokens)
	case !called:
		return ToolsNo, "the model answered with text instead of calling the tool"
	case call.Name != weatherTool:
		return ToolsNo, fmt.Sprintf("the model called %q, which is not one of its tools", oneLine(call.Name, 64))
	case json.Unmarshal(call.Input, &arguments) != nil || arguments.City == "":
		return ToolsNo, "the model called the tool with invalid arguments"
	}
	return ToolsWork, ""
}
