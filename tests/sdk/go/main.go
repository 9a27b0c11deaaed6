// Command go uses the gateway as any program with the official OpenAI SDK
// does, and prints what it saw as one JSON object. Environment: BASE_URL,
// API_KEY, MODEL, PROMPT, and CUT, a model whose streams are cut by the
// upstream. It is a module of its own so that the SDK is no dependency of the
// product.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// report is what a program sees of the gateway.
type report struct {
	Models        []string           `json:"models"`
	Retrieved     string             `json:"retrieved"`
	Completed     string             `json:"completed"`
	AnsweredModel string             `json:"answeredModel"`
	RequestID     string             `json:"requestID"`
	Streamed      string             `json:"streamed"`
	Finish        string             `json:"finish"`
	Chunks        int                `json:"chunks"`
	Usage         int64              `json:"usage"`
	Helper        string             `json:"helper"`
	Errors        map[string]failure `json:"errors"`
}

type failure struct {
	Class     string `json:"class"`
	Status    int    `json:"status"`
	Code      string `json:"code"`
	RequestID bool   `json:"requestID"`
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := use(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		log.Fatal(err)
	}
}

func newClient(key string) openai.Client {
	return openai.NewClient(option.WithBaseURL(os.Getenv("BASE_URL")), option.WithAPIKey(key), option.WithMaxRetries(0))
}

func use(ctx context.Context) (*report, error) {
	client, model := newClient(os.Getenv("API_KEY")), os.Getenv("MODEL")
	r := &report{}
	pages := client.Models.ListAutoPaging(ctx)
	for pages.Next() {
		r.Models = append(r.Models, pages.Current().ID)
	}
	if err := pages.Err(); err != nil {
		return nil, err
	}
	got, err := client.Models.Get(ctx, model)
	if err != nil {
		return nil, err
	}
	r.Retrieved = got.ID

	var raw *http.Response
	completion, err := client.Chat.Completions.New(ctx, params(model), option.WithResponseInto(&raw))
	if err != nil {
		return nil, err
	}
	r.Completed = completion.Choices[0].Message.Content
	r.AnsweredModel = completion.Model
	r.RequestID = raw.Header.Get("X-Request-Id")
	if err := r.stream(ctx, client, model); err != nil {
		return nil, err
	}
	r.Errors = failures(ctx, client)
	return r, nil
}

func params(model string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:       model,
		Messages:    []openai.ChatCompletionMessageParamUnion{openai.UserMessage(os.Getenv("PROMPT"))},
		Temperature: openai.Float(0),
	}
}

func (r *report) stream(ctx context.Context, client openai.Client, model string) error {
	p := params(model)
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	s := client.Chat.Completions.NewStreaming(ctx, p)
	defer s.Close()
	var helper openai.ChatCompletionAccumulator
	for s.Next() {
		chunk := s.Current()
		helper.AddChunk(chunk)
		r.Chunks++
		if len(chunk.Choices) > 0 {
			r.Streamed += chunk.Choices[0].Delta.Content
			r.Finish += chunk.Choices[0].FinishReason
		}
		r.Usage = max(r.Usage, chunk.Usage.CompletionTokens)
	}
	if len(helper.Choices) > 0 {
		r.Helper = helper.Choices[0].Message.Content
	}
	return s.Err()
}

func failures(ctx context.Context, client openai.Client) map[string]failure {
	stranger := newClient("sk-svc-wrong")
	_, wrongKey := stranger.Models.List(ctx)
	_, unknownModel := client.Chat.Completions.New(ctx, params("nosuch"))
	_, unknownRetrieve := client.Models.Get(ctx, "nosuch")
	_, badRequest := client.Chat.Completions.New(ctx, params("x"), option.WithJSONSet("messages", 7), option.WithJSONDel("model"))
	cut := client.Chat.Completions.NewStreaming(ctx, params(os.Getenv("CUT")))
	for cut.Next() {
		continue
	}
	cut.Close()
	return map[string]failure{
		"wrongKey":        describe(wrongKey),
		"unknownModel":    describe(unknownModel),
		"unknownRetrieve": describe(unknownRetrieve),
		"badRequest":      describe(badRequest),
		"cutStream":       describe(cut.Err()),
	}
}

// describe names an error as the SDK for Node does, by its status.
func describe(err error) failure {
	var e *openai.Error
	switch {
	case err == nil:
		return failure{Class: "none"}
	case !errors.As(err, &e):
		return failure{Class: "APIError"}
	}
	class := map[int]string{400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError"}[e.StatusCode]
	return failure{Class: class, Status: e.StatusCode, Code: e.Code, RequestID: e.Response != nil && e.Response.Header.Get("X-Request-Id") != ""}
}
