// Command go uses the gateway with the official SDKs of OpenAI and Anthropic for Go, like any program. It assembles one
// stream of each dialect with the SDK's own types, which are stricter than those for Node, and fails if the answer is
// wrong. The programs for Node cover tools, options and errors. It is a separate module, so that the product does not
// depend on the SDKs.
//
// Environment: GATEWAY is the gateway's URL, and API_KEY the key. TINY is the public name of a real model, which
// replies ANSWER. The argument is the upstream: scripted or llama, or media for audio, images and embeddings.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	forAnthropic "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	forOpenAI "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

// A reply has the parts of an answer that are compared.
type reply struct {
	model, text, finish string
	tokens              int64
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if len(os.Args) > 1 && os.Args[1] == "media" {
		if err := media(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "FAILED", err)
			os.Exit(1) //nolint:gocritic // nothing is left to cancel
		}
		return
	}
	model, text, tokens := os.Getenv("TINY"), os.Getenv("ANSWER"), int64(38)
	if len(os.Args) > 1 && os.Args[1] == "scripted" {
		model, text, tokens = "hello", "Hello, world.", 3
	}
	code := 0
	for finish, ask := range map[string]func(context.Context, string) (reply, error){
		"stop": chat, "completed": response, "end_turn": message,
	} {
		got, err := ask(ctx, model)
		if want := (reply{model, text, finish, tokens}); err != nil || got != want {
			code = 1
			fmt.Fprintf(os.Stderr, "FAILED got %+v, %v, want %+v\n", got, err, want)
		}
	}
	os.Exit(code)
}

func forGateway() openai.Client {
	return openai.NewClient(forOpenAI.WithBaseURL(os.Getenv("GATEWAY")+"/v1"), forOpenAI.WithAPIKey(os.Getenv("API_KEY")),
		forOpenAI.WithMaxRetries(0))
}

func chat(ctx context.Context, model string) (reply, error) {
	client := forGateway()
	s := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
		Model: model, Temperature: openai.Float(0),
		Messages:      []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	})
	defer s.Close()
	var got openai.ChatCompletionAccumulator
	for s.Next() {
		if !got.AddChunk(s.Current()) {
			return reply{}, errors.New("a chunk does not belong to its stream")
		}
	}
	if s.Err() != nil || len(got.Choices) != 1 {
		return reply{}, cmp.Or(s.Err(), errors.New("the answer does not have one choice"))
	}
	return reply{got.Model, got.Choices[0].Message.Content, got.Choices[0].FinishReason, got.Usage.CompletionTokens}, nil
}

func response(ctx context.Context, model string) (r reply, err error) {
	client := forGateway()
	s := client.Responses.NewStreaming(ctx, responses.ResponseNewParams{
		Model: model, Temperature: openai.Float(0),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hello")},
	})
	defer s.Close()
	for s.Next() {
		if e, ok := s.Current().AsAny().(responses.ResponseCompletedEvent); ok {
			r = reply{e.Response.Model, e.Response.OutputText(), string(e.Response.Status), e.Response.Usage.OutputTokens}
		}
	}
	return r, s.Err()
}

func message(ctx context.Context, model string) (reply, error) {
	client := anthropic.NewClient(forAnthropic.WithBaseURL(os.Getenv("GATEWAY")),
		forAnthropic.WithAPIKey(os.Getenv("API_KEY")), forAnthropic.WithMaxRetries(0))
	s := client.Messages.NewStreaming(ctx, anthropic.MessageNewParams{
		Model: model, MaxTokens: 300, Temperature: anthropic.Float(0),
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
	})
	defer s.Close()
	var got anthropic.Message
	for s.Next() {
		if err := got.Accumulate(s.Current()); err != nil {
			return reply{}, err
		}
	}
	if s.Err() != nil || len(got.Content) != 1 {
		return reply{}, cmp.Or(s.Err(), errors.New("the message does not have one block"))
	}
	return reply{got.Model, got.Content[0].Text, string(got.StopReason), got.Usage.OutputTokens}, nil
}
