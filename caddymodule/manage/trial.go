package manage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

const (
	trialWait      = 60 * time.Second // for all of a test: the model may have to be loaded
	trialTokens    = 64
	trialDeltas    = 4 * trialTokens // when a server does not mind trialTokens
	toolTokens     = 512             // a model may think before it calls a tool
	maxTrialAnswer = 1 << 20         // bytes
	maxTrialText   = 400             // bytes that are shown
)

// Whether a model calls tools, as far as a test shows.
const (
	ToolsWork    = "works"
	ToolsNo      = "no"
	ToolsUnknown = "unknown"
)

// TestResult is what a short completion showed of a deployment.
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

// TestDeployment runs a short completion on a deployment, bypassing its queue, and
// then asks for the call of a tool, within one minute. A model that does not answer
// is not an error of the operation.
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
	t := trial{result: TestResult{Tools: ToolsUnknown}}
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
	model
	result TestResult
}

// run finds the way of the deployment and asks the model for a sentence.
func (t *trial) run(ctx context.Context, s *Service, d store.Deployment) error {
	con, to, err := s.chosen(d)
	if err != nil {
		return err
	}
	upstream, name, err := to.Resolve(d.Name, d.Upstream, d.Model)
	if err != nil {
		return err
	}
	t.result.Connector = con.Name
	t.model = model{
		question: question{tunnel: to, connector: con.Name, upstream: upstream, limit: trialWait},
		name:     name, options: d.Options, now: s.now,
	}
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

// speak asks the model for a sentence, and measures how fast it comes.
func (t *trial) speak(ctx context.Context) error {
	begin := t.now()
	call, answer, err := t.ask(ctx, map[string]any{
		"max_tokens": trialTokens, "stream": true,
		"messages": said("Say hello to the person who has just set you up, in one short sentence."),
	})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	got := speech{now: t.now}
	err = got.read(ctx, &t.model, call, answer)
	t.measure(begin, &got)
	switch {
	case err != nil || got.deltas > 0:
		return err
	case got.tokens > 0:
		return fmt.Errorf("the model produced %d tokens and none of them is text", got.tokens)
	}
	return errors.New("the model's answer is empty; is it one for chat?")
}

// said is a conversation that begins with this.
func said(text string) any {
	return []any{map[string]any{"role": "user", "content": text}}
}

// measure fills in what has come, also of an answer that broke off.
func (t *trial) measure(begin time.Time, got *speech) {
	r := &t.result
	r.Answer = printable(got.text.String(), maxTrialText)
	r.Tokens = got.tokens
	if r.Tokens == 0 { // the server did not count them
		r.Tokens = got.deltas
	}
	if got.deltas == 0 {
		return
	}
	r.FirstTokenMillis = float64(got.first.Sub(begin).Microseconds()) / 1000
	// The first token took the time of the prompt, which is not related to the
	// pace of the others. When all came at once, nothing else is known.
	tokens, took := r.Tokens-1, got.last.Sub(got.first)
	if got.deltas == 1 || tokens == 0 {
		tokens, took = r.Tokens, got.last.Sub(begin)
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
	call, answer, err := t.ask(ctx, map[string]any{
		"max_tokens": toolTokens, "tool_choice": map[string]any{"type": "auto"},
		"messages": said("What is the weather in Paris now? Call the tool " + weatherTool + " to find out."),
		"tools": []any{map[string]any{
			"name": weatherTool, "description": "Tells the present weather in a city.",
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
	return judgeCall(got)
}

// judgeCall judges an answer that should have the call of weatherTool.
func judgeCall(answer message) (works, reason string) {
	at := slices.IndexFunc(answer.Content, func(b block) bool { return b.Type == "tool_use" })
	switch {
	case at >= 0:
		return judgeArguments(answer.Content[at])
	case answer.StopReason == "max_tokens":
		return ToolsUnknown, fmt.Sprintf("the model was not done after %d tokens", toolTokens)
	}
	return ToolsNo, "the model answered in words instead of calling the tool"
}

// judgeArguments judges the call of a tool.
func judgeArguments(call block) (works, reason string) {
	var arguments struct {
		City string `json:"city"`
	}
	switch {
	case call.Name != weatherTool:
		return ToolsNo, fmt.Sprintf("the model called %q, which is no tool that it has", printable(call.Name, 64))
	case json.Unmarshal(call.Input, &arguments) != nil || arguments.City == "":
		return ToolsNo, "the model called the tool with arguments that it does not take"
	}
	return ToolsWork, ""
}
