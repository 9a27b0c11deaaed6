package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

func anthropicClient(key string) anthropic.Client {
	return anthropic.NewClient(option.WithBaseURL(os.Getenv("GATEWAY")), option.WithAPIKey(key), option.WithMaxRetries(0))
}

// useMessages uses Anthropic's SDK.
func useMessages(ctx context.Context, m model, scripted bool) error {
	client := anthropicClient(os.Getenv("API_KEY"))
	for _, ask := range []func(context.Context, anthropic.Client, anthropic.MessageNewParams) (*anthropic.Message, error){newMessage, streamMessage} {
		err := first(
			func() error {
				got, err := ask(ctx, client, messageParams(m.plain))
				if err != nil {
					return err
				}
				return equal("message", []any{textOf(got), got.StopReason, got.Model, got.Usage.OutputTokens},
					[]any{m.plainText, anthropic.StopReasonEndTurn, m.plain, m.tokens})
			},
			func() error { return messageTools(ctx, client, m, ask) },
			func() error {
				if !scripted {
					return nil
				}
				return messageThinking(ctx, client, ask)
			},
		)
		if err != nil {
			return err
		}
	}
	if err := anthropicModels(ctx, client, m.plain); err != nil {
		return err
	}
	if err := countTokens(ctx, client, m.plain); err != nil || !scripted {
		return err
	}
	return messageErrors(ctx, client)
}

func messageParams(model string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: model, MaxTokens: 300, Temperature: anthropic.Float(0),
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
	}
}

func newMessage(ctx context.Context, client anthropic.Client, p anthropic.MessageNewParams) (*anthropic.Message, error) {
	return client.Messages.New(ctx, p)
}

// streamMessage puts the message of a stream together.
func streamMessage(ctx context.Context, client anthropic.Client, p anthropic.MessageNewParams) (*anthropic.Message, error) {
	s := client.Messages.NewStreaming(ctx, p)
	defer s.Close()
	var m anthropic.Message
	for s.Next() {
		if err := m.Accumulate(s.Current()); err != nil {
			return nil, err
		}
	}
	return &m, s.Err()
}

func textOf(m *anthropic.Message) string {
	var b strings.Builder
	for _, block := range m.Content {
		b.WriteString(block.Text)
	}
	return b.String()
}

func messageTools(ctx context.Context, client anthropic.Client, m model, ask func(context.Context, anthropic.Client, anthropic.MessageNewParams) (*anthropic.Message, error)) error {
	p := messageParams(m.weather)
	p.Tools = []anthropic.ToolUnionParam{
		anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: properties, Required: []string{"city"}}, "get_weather"),
	}
	got, err := ask(ctx, client, p)
	if err != nil {
		return err
	}
	var cities []string
	var results []anthropic.ContentBlockParamUnion
	for _, block := range got.Content {
		call, ok := block.AsAny().(anthropic.ToolUseBlock)
		if !ok {
			continue
		}
		var input struct{ City string }
		if err := json.Unmarshal(call.Input, &input); err != nil {
			return err
		}
		cities = append(cities, input.City)
		results = append(results, anthropic.NewToolResultBlock(call.ID, degrees(input.City), false))
	}
	if err := equal("calls in a message", []any{cities, got.StopReason}, []any{m.cities, anthropic.StopReasonToolUse}); err != nil {
		return err
	}
	p.Messages = append(p.Messages, got.ToParam(), anthropic.NewUserMessage(results...))
	if got, err = ask(ctx, client, p); err != nil {
		return err
	}
	return equal("message after calls", textOf(got), m.weatherText)
}

func messageThinking(ctx context.Context, client anthropic.Client, ask func(context.Context, anthropic.Client, anthropic.MessageNewParams) (*anthropic.Message, error)) error {
	p := messageParams("think")
	p.Thinking = anthropic.ThinkingConfigParamOfEnabled(2048)
	got, err := ask(ctx, client, p)
	if err != nil {
		return err
	}
	if len(got.Content) != 2 || got.Content[0].Signature == "" {
		return fmt.Errorf("thinking: %s", got.RawJSON())
	}
	return equal("thinking", []string{got.Content[0].Thinking, got.Content[1].Text}, []string{"Six times seven.", "Forty-two."})
}

func anthropicModels(ctx context.Context, client anthropic.Client, name string) error {
	var names []string
	pages := client.Models.ListAutoPaging(ctx, anthropic.ModelListParams{Limit: anthropic.Int(2)})
	for pages.Next() {
		names = append(names, pages.Current().ID)
	}
	if err := pages.Err(); err != nil {
		return err
	}
	got, err := client.Models.Get(ctx, name, anthropic.ModelGetParams{})
	if err != nil {
		return err
	}
	return first(
		func() error { return sorted(names, name) },
		func() error { return equal("retrieved model", []string{got.ID, got.DisplayName}, []string{name, name}) },
	)
}

func countTokens(ctx context.Context, client anthropic.Client, name string) error {
	messages := messageParams(name).Messages
	few, err := client.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{Model: name, Messages: messages})
	if err != nil {
		return err
	}
	messages = append(messages, anthropic.NewAssistantMessage(anthropic.NewTextBlock("Yes?")), messages[0])
	many, err := client.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{Model: name, Messages: messages})
	if err != nil {
		return err
	}
	if few.InputTokens < 1 || many.InputTokens <= few.InputTokens {
		return fmt.Errorf("tokens: %d, and %d of more messages", few.InputTokens, many.InputTokens)
	}
	return nil
}

func messageErrors(ctx context.Context, client anthropic.Client) error {
	got := map[string]error{}
	_, got["key"] = newMessage(ctx, anthropicClient("sk-svc-wrong"), messageParams("hello"))
	_, got["model"] = newMessage(ctx, client, messageParams("nosuch"))
	_, got["streamed model"] = streamMessage(ctx, client, messageParams("nosuch"))
	_, got["retrieve"] = client.Models.Get(ctx, "nosuch", anthropic.ModelGetParams{})
	_, got["request"] = newMessage(ctx, client, anthropic.MessageNewParams{Model: "hello", MaxTokens: 10, Messages: []anthropic.MessageParam{}})
	_, got["full"] = newMessage(ctx, client, messageParams("full"))
	_, got["loading"] = newMessage(ctx, client, messageParams("loading"))
	_, got["offline"] = newMessage(ctx, client, messageParams("offline"))
	_, got["cut"] = streamMessage(ctx, client, messageParams("cut"))
	return failures(describeAnthropic, got, map[string]failure{
		"key":            {401, "authentication_error", true},
		"model":          {404, "not_found_error", true},
		"streamed model": {404, "not_found_error", true},
		"retrieve":       {404, "not_found_error", true},
		"request":        {400, "invalid_request_error", true},
		"full":           {400, "invalid_request_error", true},
		"loading":        {529, "overloaded_error", true},
		"offline":        {503, "overloaded_error", true},
		"cut":            {200, "api_error", true},
	})
}

func describeAnthropic(err error) (failure, bool) {
	var e *anthropic.Error
	if !errors.As(err, &e) || e.StatusCode == 0 {
		return failure{}, false
	}
	return failure{e.StatusCode, string(e.Type()), e.RequestID != ""}, true
}
