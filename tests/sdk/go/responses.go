package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// useResponses uses OpenAI's SDK with responses.
func useResponses(ctx context.Context, m model, scripted bool) error {
	client := openaiClient(os.Getenv("API_KEY"))
	for _, ask := range []func(context.Context, openai.Client, responses.ResponseNewParams) (*responses.Response, error){
		newResponse, streamResponse,
	} {
		err := first(
			func() error {
				got, err := ask(ctx, client, responseParams(m.plain, "hello"))
				if err != nil {
					return err
				}
				return equal("response", []any{got.OutputText(), string(got.Status), got.Model, got.Usage.OutputTokens},
					[]any{m.plainText, "completed", m.plain, m.tokens})
			},
			func() error { return responseTools(ctx, client, m, ask) },
		)
		if err != nil {
			return err
		}
	}
	if !scripted {
		return nil
	}
	return responseErrors(ctx, client)
}

func responseParams(model, input string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: model, Temperature: openai.Float(0),
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(input)},
	}
}

func newResponse(ctx context.Context, client openai.Client,
	p responses.ResponseNewParams,
) (*responses.Response, error) {
	return client.Responses.New(ctx, p)
}

// streamResponse checks the events of a stream and returns the response of the last one.
func streamResponse(ctx context.Context, client openai.Client,
	p responses.ResponseNewParams,
) (*responses.Response, error) {
	s := client.Responses.NewStreaming(ctx, p)
	defer s.Close()
	var final *responses.Response
	said, n := "", int64(0)
	for ; s.Next(); n++ {
		event := s.Current()
		if event.SequenceNumber != n {
			return nil, fmt.Errorf("event %d has the number %d", n, event.SequenceNumber)
		}
		switch e := event.AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			said += e.Delta
		case responses.ResponseCompletedEvent:
			final = &e.Response
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	if final == nil {
		return nil, errors.New("the stream has no response.completed")
	}
	return final, equal("text of the events", said, final.OutputText())
}

// responseTools calls tools, and returns their results with the id of the previous response.
func responseTools(ctx context.Context, client openai.Client, m model,
	ask func(context.Context, openai.Client, responses.ResponseNewParams) (*responses.Response, error),
) error {
	p := responseParams(m.weather, "How is the weather?")
	p.Tools = []responses.ToolUnionParam{responses.ToolParamOfFunction("get_weather",
		map[string]any{"type": "object", "properties": properties, "required": []string{"city"}}, false)}
	got, err := ask(ctx, client, p)
	if err != nil {
		return err
	}
	var cities []string
	var results responses.ResponseInputParam
	for _, item := range got.Output {
		call, ok := item.AsAny().(responses.ResponseFunctionToolCall)
		if !ok {
			continue
		}
		var arguments struct{ City string }
		if err := json.Unmarshal([]byte(call.Arguments), &arguments); err != nil {
			return err
		}
		cities = append(cities, arguments.City)
		result := responses.ResponseInputItemParamOfFunctionCallOutput(degrees(arguments.City))
		result.OfFunctionCallOutput.CallID = openai.String(call.CallID)
		results = append(results, result)
	}
	if err := equal("calls in a response", cities, m.cities); err != nil {
		return err
	}
	p.PreviousResponseID = openai.String(got.ID)
	p.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: results}
	if got, err = ask(ctx, client, p); err != nil {
		return err
	}
	return equal("response after calls", got.OutputText(), m.weatherText)
}

// responseErrors checks an error answer and an error within a stream.
func responseErrors(ctx context.Context, client openai.Client) error {
	_, err := newResponse(ctx, client, responseParams("full", "hello"))
	_, cut := streamResponse(ctx, client, responseParams("cut", "hello"))
	return first(
		func() error { return isOpenAI("response", err, 400, "context_length_exceeded") },
		func() error { return failed("a response that is cut", cut) },
	)
}
