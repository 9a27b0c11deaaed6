// Command go uses the gateway as any program with the official SDKs of OpenAI
// and of Anthropic for Go does, checks what it sees, and fails if that is
// wrong. All models and errors are in the programs for Node. It is a module of its
// own so that the SDKs are no dependency of the product.
//
// Environment: GATEWAY, its URL; API_KEY; TINY, the public name of a real
// model, which says ANSWER, calls get_weather where there are tools, and says
// DONE after their results. Argument: the upstream that is used, scripted or
// llama.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"
)

// A model is what is asked, and what it is known to say.
type model struct {
	plain, plainText, weather, weatherText string
	cities                                 []string // that it calls the tool for
	tokens                                 int64    // of plainText
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

// first returns the first error of some checks, which run until then.
func first(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// equal compares what was seen with what was to be seen.
func equal(what string, got, want any) error {
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s: got %#v, want %#v", what, got, want)
	}
	return nil
}

// degrees is what the tool says.
func degrees(city string) string {
	return map[string]string{"Paris": "21", "Tokyo": "25"}[city]
}

// properties are those of the tool's parameters.
var properties = map[string]any{"city": map[string]any{"type": "string"}}

// failed returns an error if there is none.
func failed(what string, err error) error {
	if err == nil {
		return errors.New(what + " is not an error")
	}
	return nil
}
