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
	for _, ask := range []func(context.Context, anthropic.Client, anthropic.MessageNewParams) (*anthropic.Message, error){
		newMessage, streamMessage,
	} {
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
	if !scripted {
		return nil
	}
	return messageErrors(ctx, client)
}

func messageParams(model string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: model, MaxTokens: 300, Temperature: anthropic.Float(0),
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
	}
}

func newMessage(ctx context.Context, client anthropic.Client,
	p anthropic.MessageNewParams,
) (*anthropic.Message, error) {
	return client.Messages.New(ctx, p)
}

// streamMessage assembles the message of a stream.
func streamMessage(ctx context.Context, client anthropic.Client,
	p anthropic.MessageNewParams,
) (*anthropic.Message, error) {
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

func messageTools(ctx context.Context, client anthropic.Client, m model,
	ask func(context.Context, anthropic.Client, anthropic.MessageNewParams) (*anthropic.Message, error),
) error {
	p := messageParams(m.weather)
	p.Tools = []anthropic.ToolUnionParam{
		anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: properties, Required: []string{"city"}},
			"get_weather"),
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
	if err := equal("calls in a message", []any{cities, got.StopReason},
		[]any{m.cities, anthropic.StopReasonToolUse}); err != nil {
		return err
	}
	p.Messages = append(p.Messages, got.ToParam(), anthropic.NewUserMessage(results...))
	if got, err = ask(ctx, client, p); err != nil {
		return err
	}
	return equal("message after calls", textOf(got), m.weatherText)
}

func messageThinking(ctx context.Context, client anthropic.Client,
	ask func(context.Context, anthropic.Client, anthropic.MessageNewParams) (*anthropic.Message, error),
) error {
	p := messageParams("think")
	p.Thinking = anthropic.ThinkingConfigParamOfEnabled(2048)
	got, err := ask(ctx, client, p)
	if err != nil {
		return err
	}
	if len(got.Content) != 2 || got.Content[0].Signature == "" {
		return fmt.Errorf("thinking: %s", got.RawJSON())
	}
	return equal("thinking", []string{got.Content[0].Thinking, got.Content[1].Text},
		[]string{"Six times seven.", "Forty-two."})
}

// messageErrors checks an error answer and an error within a stream.
func messageErrors(ctx context.Context, client anthropic.Client) error {
	_, err := newMessage(ctx, client, messageParams("loading"))
	_, cut := streamMessage(ctx, client, messageParams("cut"))
	return first(
		func() error { return isAnthropic("message", err, 529, "overloaded_error") },
		func() error { return isAnthropic("a message that is cut", cut, 200, "api_error") },
	)
}

// isAnthropic checks an error of Anthropic's SDK.
func isAnthropic(what string, err error, status int, kind string) error {
	var e *anthropic.Error
	if !errors.As(err, &e) || e.StatusCode != status || string(e.Type()) != kind || e.RequestID == "" {
		return fmt.Errorf("%s: the error is %w, not %d %s", what, err, status, kind)
	}
	return nil
}
