package manage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

const (
	trialWait      = 60 * time.Second // for all of a test: the model may have to be loaded
	trialTokens    = 64
	trialDeltas    = 4 * trialTokens // when a server does not mind trialTokens
	toolTokens     = 512             // a model may think before it calls a tool
	maxTrialAnswer = 1 << 20         // bytes
	maxTrialText   = 400             // bytes that are shown
)

// Whether a model calls tools, as far as a test can tell.
const (
	ToolsWork    = "works"
	ToolsNo      = "no"
	ToolsUnknown = "unknown"
)

// TestResult is what a short completion told of a deployment.
type TestResult struct {
	OK               bool    `json:"ok"`
	FirstTokenMillis float64 `json:"first_token_ms"`
	TokensPerSecond  float64 `json:"tokens_per_second"`
	Tokens           int     `json:"tokens"`
	Tools            string  `json:"tools"` // ToolsWork, ToolsNo or ToolsUnknown
	// ToolsReason is why tools do not work, or why that is not known.
	ToolsReason string `json:"tools_reason,omitempty"`
	// Connector is the name of the one that was asked, empty if none is online.
	Connector string `json:"connector,omitempty"`
	// Answer is the beginning of what the model said.
	Answer string `json:"answer"`
	// Error is why the completion failed, empty if OK.
	Error string `json:"error,omitempty"`
}

// TestDeployment runs, beside the deployment's queue, a short completion on a deployment and then asks for the
// call of a tool, in a minute at most. That the model does not answer is no
// error of the operation.
func (s *Service) TestDeployment(ctx context.Context, account, name string) (TestResult, error) {
	account, err := s.account(ctx, account)
	if err != nil {
		return TestResult{}, err
	}
	d, ok := s.store.Deployment(account, name)
	if !ok {
		return TestResult{}, faultf(store.ErrNotFound, "there is no deployment %q in account %q", name, account)
	}
	ctx, cancel := context.WithTimeout(ctx, trialWait)
	defer cancel()
	t := trial{now: s.now, result: TestResult{Tools: ToolsUnknown}}
	if err := t.run(ctx, s, d); err != nil {
		t.result.Error = err.Error()
		return t.result, nil
	}
	t.result.OK = true
	t.result.Tools, t.result.ToolsReason = t.tools(ctx)
	return t.result, nil
}

// trial is a test of a deployment.
type trial struct {
	question
	model  string // the upstream's
	now    func() time.Time
	result TestResult
}

// run finds the way of the deployment and has the model say something.
func (t *trial) run(ctx context.Context, s *Service, d store.Deployment) error {
	con, to, err := s.chosen(d)
	if err != nil {
		return err
	}
	upstream, model, err := to.Resolve(d.Name, d.Upstream, d.Model)
	if err != nil {
		return err
	}
	t.result.Connector = con.Name
	t.question = question{tunnel: to, connector: con.Name, upstream: upstream, limit: trialWait}
	t.model = model
	return t.speak(ctx)
}

// chosen is that of the deployment's connectors which a request would go to.
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

// chat is as much of a Chat Completions request as tests send.
type chat struct {
	Model         string         `json:"model"`
	Messages      []chatMessage  `json:"messages"`
	MaxTokens     int            `json:"max_tokens"`
	Stream        bool           `json:"stream"`
	StreamOptions *streamOptions `json:"stream_options,omitempty"`
	Tools         []any          `json:"tools,omitempty"`
	ToolChoice    string         `json:"tool_choice,omitempty"`
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// post sends a request for a completion.
func (t *trial) post(ctx context.Context, c chat) (*http.Response, error) {
	c.Model = t.model
	body, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encoding the request: %w", err)
	}
	return t.do(ctx, http.MethodPost, "/v1/chat/completions", body)
}

// speak has the model say a sentence, and measures how fast.
func (t *trial) speak(ctx context.Context) error {
	begin := t.now()
	answer, err := t.post(ctx, chat{
		Messages:  []chatMessage{{"user", "Say hello to the person who has just set you up, in one short sentence."}},
		MaxTokens: trialTokens, Stream: true, StreamOptions: &streamOptions{IncludeUsage: true},
	})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	heard := speech{now: t.now}
	if link.HasMediaType(answer.Header, "application/json") { // of a server that does not stream
		err = heard.whole(answer.Body)
	} else {
		err = heard.stream(answer.Body)
	}
	t.measure(begin, &heard)
	var told *toldError
	switch {
	case errors.As(err, &told):
		return err
	case err != nil:
		return t.explain(ctx, err)
	case heard.deltas > 0:
		return nil
	case heard.tokens > 0:
		return fmt.Errorf("the model produced %d tokens and none of them is text", heard.tokens)
	}
	return errors.New("the model's answer is empty; is it one for chat?")
}

// measure fills in what was heard, also of an answer that broke off.
func (t *trial) measure(begin time.Time, heard *speech) {
	r := &t.result
	r.Answer = clean(heard.text.String(), maxTrialText)
	r.Tokens = heard.tokens
	if r.Tokens == 0 { // the server does not tell
		r.Tokens = heard.deltas
	}
	if heard.deltas == 0 {
		return
	}
	r.FirstTokenMillis = float64(heard.first.Sub(begin).Microseconds()) / 1000
	// The first token took the time of the prompt, which says nothing about the
	// pace of the others. When all came at once, nothing else is known.
	tokens, took := r.Tokens-1, heard.last.Sub(heard.first)
	if heard.deltas == 1 || tokens == 0 {
		tokens, took = r.Tokens, heard.last.Sub(begin)
	}
	if took > 0 {
		r.TokensPerSecond = float64(tokens) / took.Seconds()
	}
}

// weatherTool is what the model is to call.
const weatherTool = "get_weather"

// tools asks for the call of a tool in the way of agents, which leave the
// choice to the model, and judges the answer.
func (t *trial) tools(ctx context.Context) (works, reason string) {
	answer, err := t.post(ctx, chat{
		Messages:  []chatMessage{{"user", "What is the weather in Paris now? Call the tool " + weatherTool + " to find out."}},
		MaxTokens: toolTokens, ToolChoice: "auto",
		Tools: []any{map[string]any{"type": "function", "function": map[string]any{
			"name": weatherTool, "description": "Tells the present weather in a city.",
			"parameters": map[string]any{
				"type": "object", "required": []string{"city"},
				"properties": map[string]any{"city": map[string]any{"type": "string"}},
			},
		}}},
	})
	var refused *refusal
	if errors.As(err, &refused) && strings.Contains(strings.ToLower(refused.text), "tool") {
		return ToolsNo, refused.Error()
	}
	if err != nil {
		return ToolsUnknown, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxTrialAnswer))
	if err != nil {
		return ToolsUnknown, t.explain(ctx, err).Error()
	}
	return judgeCall(body)
}

// judgeCall judges an answer that should have the call of weatherTool.
func judgeCall(body []byte) (works, reason string) {
	var c completion
	if json.Unmarshal(body, &c) != nil || len(c.Choices) == 0 {
		return ToolsUnknown, "the model server's answer cannot be read"
	}
	choice := c.Choices[0]
	switch calls := choice.Message.ToolCalls; {
	case len(calls) > 0:
		return judgeArguments(calls[0].Function.Name, calls[0].Function.Arguments)
	case choice.FinishReason == "length":
		return ToolsUnknown, fmt.Sprintf("the model was not done after %d tokens", toolTokens)
	}
	return ToolsNo, "the model answered in words instead of calling the tool"
}

// judgeArguments judges the call of a tool. Its arguments should be JSON in a
// string.
func judgeArguments(name string, raw json.RawMessage) (works, reason string) {
	if name != weatherTool {
		return ToolsNo, fmt.Sprintf("the model called %q, which is no tool that it has", clean(name, 64))
	}
	var text string
	var arguments struct {
		City string `json:"city"`
	}
	if json.Unmarshal(raw, &text) != nil || json.Unmarshal([]byte(text), &arguments) != nil || arguments.City == "" {
		return ToolsNo, "the model called the tool with arguments that it does not take"
	}
	return ToolsWork, ""
}
