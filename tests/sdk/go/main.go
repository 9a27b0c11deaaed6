// Command go uses the gateway with the official SDKs of OpenAI and Anthropic for Go, like any program. It checks the
// results and fails if they are wrong. The programs for Node cover all models and errors. It is a separate module, so
// that the product does not depend on the SDKs.
//
// Environment: GATEWAY is the gateway's URL, and API_KEY the key. TINY is the public name of a real model, which
// replies ANSWER, calls get_weather if there are tools, and replies DONE to their results. The argument is the
// upstream: scripted or llama.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"
)

// A model is a model with its known answers.
type model struct {
	plain, plainText, weather, weatherText string
	cities                                 []string // arguments of its calls of the tool
	tokens                                 int64    // tokens of plainText
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	scripted := len(os.Args) > 1 && os.Args[1] == "scripted"
	tiny := os.Getenv("TINY")
	m := model{tiny, os.Getenv("ANSWER"), tiny, os.Getenv("DONE"), []string{"Paris"}, 38}
	if scripted {
		m = model{"hello", "Hello, world.", "weather", "Results: 21, 25", []string{"Paris", "Tokyo"}, 3}
	}
	code := 0
	for _, use := range []func(context.Context, model, bool) error{useChat, useResponses, useMessages} {
		if err := use(ctx, m, scripted); err != nil {
			code = 1
			fmt.Fprintln(os.Stderr, "FAILED", err)
		}
	}
	os.Exit(code)
}

// first runs checks until one fails, and returns its error.
func first(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// equal compares a result with the expected one.
func equal(what string, got, want any) error {
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s: got %#v, want %#v", what, got, want)
	}
	return nil
}

// degrees returns the result of the tool.
func degrees(city string) string {
	return map[string]string{"Paris": "21", "Tokyo": "25"}[city]
}

// properties are the properties of the tool's parameters.
var properties = map[string]any{"city": map[string]any{"type": "string"}}

// failed returns an error if there is none.
func failed(what string, err error) error {
	if err == nil {
		return errors.New(what + " is not an error")
	}
	return nil
}
