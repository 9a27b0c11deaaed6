package manage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/serve"
)

const (
	testTokens = 64
	toolTokens = 512 // a model may think before it calls a tool
)

const (
	testTime = 60 * time.Second // for a whole test
	testText = 400              // bytes of an answer that are kept
)

// The results of the tool test.
const (
	ToolsWork    = "works"
	ToolsNo      = "no"
	ToolsUnknown = "unknown"
)

// TestResult is the result of [Service.TestDeployment].
type TestResult struct {
	OK bool `json:"ok"`
	Speed
	Tools string `json:"tools,omitempty"` // "works", "no" or "unknown"; "" if it is not a chat model
	// ToolsReason is why tools do not work, or why that is not known.
	ToolsReason string `json:"tools_reason,omitempty"`
	// AnswerMillis is how long a model took that is not a chat model.
	AnswerMillis float64 `json:"answer_ms,omitempty"`
	// Dimensions is the size of the vectors of an embeddings model.
	Dimensions int `json:"dimensions,omitempty"`
	// Connector is the name of the used connector, empty if none is online.
	Connector string `json:"connector,omitempty"`
	// Answer is the beginning of the model's answer.
	Answer string `json:"answer"`
	// Error is why the completion failed, empty if OK.
	Error string `json:"error,omitempty"`
}

// TestDeployment requests a short answer from a deployment, and then a tool call, within one minute. From a model of
// another kind it requests one answer of that kind. A failure of the model is not an error of the operation.
func (s *Service) TestDeployment(ctx context.Context, name string) (result TestResult, err error) {
	d, err := s.deployment(ctx, name)
	if err != nil {
		return result, err
	}
	ctx, cancel := within(ctx, testTime)
	defer cancel()
	t := modelTest{s, question(ctx, activity.Test, d), &result}
	sample, other := samples[d.ModelKind()]
	if other {
		err = t.once(ctx, sample)
	} else {
		result.Tools = ToolsUnknown
		err = t.complete(ctx)
	}
	if err != nil {
		result.Error = err.Error()
		return result, nil
	}
	result.OK = true
	if !other {
		result.Tools, result.ToolsReason = t.tools(ctx)
	}
	return result, nil
}

// modelTest is a test of a deployment.
type modelTest struct {
	*Service
	question *serve.Question
	result   *TestResult
}

// request requests an answer of so many tokens.
func (t *modelTest) request(ctx context.Context, text string, tokens int, request map[string]any) (*reply, error) {
	r := &reply{maxPieces: 4 * tokens, maxText: testText, now: t.now}
	request["max_tokens"] = tokens
	err := t.askMessages(ctx, t.question, text, request, r)
	t.result.Connector = t.connectorName(r.asked)
	return r, err
}

// connectorName returns the name of the connector of a request, "" if there is none.
func (s *Service) connectorName(asked serve.Asked) string {
	con, _ := s.store.Connector(asked.Connector)
	return con.Name
}

// complete requests a sentence and measures its speed.
func (t *modelTest) complete(ctx context.Context) error {
	r, err := t.request(ctx, "Say hello to the person who has just set you up, in one short sentence.", testTokens,
		map[string]any{})
	t.result.Speed, t.result.Answer = r.speed(), oneLine(r.text.String(), testText)
	switch {
	case err != nil || r.pieces > 0:
		return err
	case t.result.Tokens > 0:
		return fmt.Errorf("the model produced %d tokens, but no text", t.result.Tokens)
	}
	return errors.New("the model's answer is empty; check that it is a chat model")
}

// weatherTool is the tool that the model should call.
const weatherTool = "get_weather"

// tools requests a tool call as agents do, with the choice left to the model, and
// judges the answer.
func (t *modelTest) tools(ctx context.Context) (works, reason string) {
	const text = "What is the weather in Paris now? Call the tool " + weatherTool + " to find out."
	r, err := t.request(ctx, text, toolTokens, map[string]any{
		"tool_choice": map[string]any{"type": "auto"},
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
	case r.toolCalls == 0 && (r.stop == "max_tokens" || r.pieces == r.maxPieces):
		return ToolsUnknown, fmt.Sprintf("the model did not finish within %d tokens", toolTokens)
	case r.toolCalls == 0:
		return ToolsNo, "the model answered with text instead of calling the tool"
	case r.toolName != weatherTool:
		return ToolsNo, fmt.Sprintf("the model called %q, which is not one of its tools", oneLine(r.toolName, 64))
	case json.Unmarshal([]byte(r.arguments.String()), &arguments) != nil || arguments.City == "":
		return ToolsNo, "the model called the tool with invalid arguments"
	}
	return ToolsWork, ""
}
