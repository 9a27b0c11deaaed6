package main

import (
	"context"
	"errors"
	"net/http"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func openaiClient(key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(os.Getenv("GATEWAY")+"/v1"), option.WithAPIKey(key), option.WithMaxRetries(0))
}

// useChat uses OpenAI's SDK by chat completions.
func useChat(ctx context.Context, m model, scripted bool) error {
	client := openaiClient(os.Getenv("API_KEY"))
	err := first(
		func() error { return openaiModels(ctx, client, m.plain) },
		func() error { return chatPlain(ctx, client, m) },
		func() error { return chatStream(ctx, client, m) },
	)
	if err != nil || !scripted {
		return err
	}
	return chatErrors(ctx, client)
}

func openaiModels(ctx context.Context, client openai.Client, name string) error {
	var names []string
	pages := client.Models.ListAutoPaging(ctx)
	for pages.Next() {
		names = append(names, pages.Current().ID)
	}
	if err := pages.Err(); err != nil {
		return err
	}
	got, err := client.Models.Get(ctx, name)
	if err != nil {
		return err
	}
	return first(
		func() error { return sorted(names, name) },
		func() error { return equal("retrieved model", got.ID, name) },
	)
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

func chatErrors(ctx context.Context, client openai.Client) error {
	stranger := openaiClient("sk-svc-wrong")
	got := map[string]error{}
	_, got["key"] = stranger.Models.List(ctx)
	_, got["model"] = client.Chat.Completions.New(ctx, chatParams("nosuch"))
	_, got["retrieve"] = client.Models.Get(ctx, "nosuch")
	_, got["request"] = client.Chat.Completions.New(ctx, chatParams("x"), option.WithJSONSet("messages", 7), option.WithJSONDel("model"))
	_, got["offline"] = client.Chat.Completions.New(ctx, chatParams("offline"))
	cut := client.Chat.Completions.NewStreaming(ctx, chatParams("cut"))
	defer cut.Close()
	for cut.Next() {
		continue
	}
	got["cut"] = cut.Err()
	return failures(describeOpenAI, got, map[string]failure{
		"key":      {401, "invalid_api_key", true},
		"model":    {404, "model_not_found", true},
		"retrieve": {404, "model_not_found", true},
		"request":  {400, "missing_required_parameter", true},
		"offline":  {503, "deployment_offline", true},
	})
}

func describeOpenAI(err error) (failure, bool) {
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode == 0 {
		return failure{}, false
	}
	return failure{e.StatusCode, e.Code, e.Response != nil && e.Response.Header.Get("X-Request-Id") != ""}, true
}
