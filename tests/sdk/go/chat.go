package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func openaiClient(key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(os.Getenv("GATEWAY")+"/v1"), option.WithAPIKey(key),
		option.WithMaxRetries(0))
}

// useChat uses OpenAI's SDK with chat completions.
func useChat(ctx context.Context, m model, scripted bool) error {
	client := openaiClient(os.Getenv("API_KEY"))
	err := first(
		func() error { return chatPlain(ctx, client, m) },
		func() error { return chatStream(ctx, client, m) },
	)
	if err != nil || !scripted {
		return err
	}
	return chatErrors(ctx, client)
}

func chatParams(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:       model,
		Messages:    []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
		Temperature: openai.Float(0),
	}
}

func chatPlain(ctx context.Context, client openai.Client, m model) error {
	var raw *http.Response
	got, err := client.Chat.Completions.New(ctx, chatParams(m.plain), option.WithResponseInto(&raw))
	if err != nil {
		return err
	}
	return first(
		func() error { return equal("chat", got.Choices[0].Message.Content, m.plainText) },
		func() error { return equal("chat: model", got.Model, m.plain) },
		func() error { return equal("chat: request id", raw.Header.Get("X-Request-Id")[:4], "req_") },
	)
}

func chatStream(ctx context.Context, client openai.Client, m model) error {
	p := chatParams(m.plain)
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	s := client.Chat.Completions.NewStreaming(ctx, p)
	defer s.Close()
	var helper openai.ChatCompletionAccumulator
	for s.Next() {
		if !helper.AddChunk(s.Current()) {
			return errors.New("chat: a chunk does not belong to its stream")
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	return first(
		func() error { return equal("streamed chat", helper.Choices[0].Message.Content, m.plainText) },
		func() error { return equal("streamed chat: finish reason", helper.Choices[0].FinishReason, "stop") },
		func() error { return equal("streamed chat: tokens", helper.Usage.CompletionTokens, m.tokens) },
	)
}

// chatErrors checks an error answer and an error within a stream.
func chatErrors(ctx context.Context, client openai.Client) error {
	_, err := client.Chat.Completions.New(ctx, chatParams("nosuch"))
	cut := client.Chat.Completions.NewStreaming(ctx, chatParams("cut"))
	defer cut.Close()
	for cut.Next() {
		continue
	}
	return first(
		func() error { return isOpenAI("chat", err, 404, "model_not_found") },
		func() error { return failed("a chat that is cut", cut.Err()) },
	)
}

// isOpenAI checks an error of OpenAI's SDK.
func isOpenAI(what string, err error, status int, code string) error {
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != status || e.Code != code || e.Response.Header.Get("X-Request-Id") == "" {
		return fmt.Errorf("%s: the error is %w, not %d %s", what, err, status, code)
	}
	return nil
}
