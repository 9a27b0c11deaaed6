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
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	testTokens = 64
	toolTokens = 512 // a model may think before it calls a tool
)

// testBounds are the bounds of a test, and of each answer in it.
var testBounds = bounds{timeout: 60 * time.Second, maxPieces: 4 * testTokens, maxText: 400, maxBytes: 1 << 20}

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
	Tools string `json:"tools,omitempty"` // "works", "no" or "unknown"; "" for an embeddings model
	// ToolsReason is why tools do not work, or why that is not known.
	ToolsReason string `json:"tools_reason,omitempty"`
	// AnswerMillis is how long an embeddings model took, and Dimensions the size of its vectors.
	AnswerMillis float64 `json:"answer_ms,omitempty"`
	Dimensions   int     `json:"dimensions,omitempty"`
	// Connector is the name of the used connector, empty if none is online.
	Connector string `json:"connector,omitempty"`
	// Answer is the beginning of the model's answer.
	Answer string `json:"answer"`
	// Error is why the completion failed, empty if OK.
	Error string `json:"error,omitempty"`
}

// TestDeployment requests a short answer from a deployment, bypassing its queue, and then a tool call, within one
// minute. From an embeddings model it requests a vector. A failure of the model is not an error of the operation.
func (s *Service) TestDeployment(ctx context.Context, name string) (TestResult, error) {
	d, err := s.deployment(ctx, name)
	if err != nil {
		return TestResult{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, testBounds.timeout)
	defer cancel()
	t := modelTest{s.modelClient(d, store.Key{}, activity.Test, testBounds), TestResult{}}
	if err := t.run(ctx, s); err != nil {
		t.result.Error = err.Error()
		return t.result, nil
	}
	if t.result.OK = true; d.Kind != store.EmbeddingsModel {
		t.result.Tools, t.result.ToolsReason = t.tools(ctx)
	}
	return t.result, nil
}

// modelTest is a test of a deployment.
type modelTest struct {
	modelClient
	result TestResult
}

// run finds the route of the deployment and requests a sentence or a vector.
func (t *modelTest) run(ctx context.Context, s *Service) error {
	embeds := t.deployment.Kind == store.EmbeddingsModel
	if !embeds {
		t.result.Tools = ToolsUnknown
	}
	if err := t.route(s); err != nil {
		return err
	}
	if t.result.Connector = t.connector; embeds {
		return t.embed(ctx)
	}
	return t.complete(ctx)
}

// complete requests a sentence and measures its speed.
func (t *modelTest) complete(ctx context.Context) error {
	r, err := t.ask(ctx, "Say hello to the person who has just set you up, in one short sentence.",
		map[string]any{"max_tokens": testTokens, "stream": true}, nil)
	t.result.Speed, t.result.Answer = r.speed(), oneLine(r.text.String(), testBounds.maxText)
	switch {
	case err != nil || r.pieces > 0:
		return err
	case r.tokens > 0:
		return fmt.Errorf("the model produced %d tokens, but no text", r.tokens)
	}
	return errors.New("the model's answer is empty; is it a chat model?")
}

// embed requests a vector.
func (t *modelTest) embed(ctx context.Context) error {
	data, err := json.Marshal(map[string]any{"model": t.model, "input": "Hello."})
	if err != nil {
		return err
	}
	r, err := t.post(ctx, "/v1/embeddings", data, func(answer []byte, err error) error {
		var embedded struct {
			Data []struct{ Embedding []float64 }
		}
		if err != nil {
			return err
		}
		if json.Unmarshal(answer, &embedded) != nil || len(embedded.Data) == 0 || len(embedded.Data[0].Embedding) == 0 {
			return errors.New("the model server's answer has no vector; is it an embeddings model?")
		}
		t.result.Dimensions = len(embedded.Data[0].Embedding)
		return nil
	})
	if err == nil {
		t.result.AnswerMillis = activity.Millis(t.now().Sub(r.sent))
	}
	return err
}

// weatherTool is the tool that the model should call.
const weatherTool = "get_weather"

// tools requests a tool call as agents do, with the choice left to the model, and
// judges the answer.
func (t *modelTest) tools(ctx context.Context) (works, reason string) {
	r, err := t.ask(ctx, "What is the weather in Paris now? Call the tool "+weatherTool+" to find out.", map[string]any{
		"max_tokens": toolTokens, "tool_choice": map[string]any{"type": "auto"},
		"tools": []any{map[string]any{
			"name": weatherTool, "description": "Returns the current weather in a city.",
			"input_schema": map[string]any{
				"type": "object", "required": []string{"city"},
				"properties": map[string]any{"city": map[string]any{"type": "string"}},
			},
		}},
	}, nil)
	var refused *dialect.Error
	var arguments struct {
		City string `json:"city"`
	}
	switch {
	case errors.As(err, &refused) && strings.Contains(strings.ToLower(refused.Message), "tool"):
		return ToolsNo, refused.Message
	case err != nil:
		return ToolsUnknown, err.Error()
	case r.toolCalls == 0 && r.stop == "max_tokens":
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
