// Command go uses the gateway as any program with the official SDKs of OpenAI
// and of Anthropic for Go does, checks what it sees, and fails if that is
// wrong. It is a module of its own so that the SDKs are no dependency of the
// product.
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
	"strings"
	"time"
)

// A model is what is asked, and what it is known to say.
type model struct {
	plain, plainText, weather, weatherText string
	cities                                 []string // that it calls the tool for
	tokens                                 int64    // of plainText
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	scripted := len(os.Args) > 1 && os.Args[1] == "scripted"
	tiny := os.Getenv("TINY")
	m := model{tiny, os.Getenv("ANSWER"), tiny, os.Getenv("DONE"), []string{"Paris"}, 38}
	if scripted {
		m = model{"hello", "Hello, world.", "weather", "Results: 21, 25", []string{"Paris", "Tokyo"}, 3}
	}
	failed := false
	for _, use := range []func(context.Context, model, bool) error{useChat, useResponses, useMessages} {
		if err := use(ctx, m, scripted); err != nil {
			failed = true
			fmt.Fprintln(os.Stderr, "FAILED", err)
		}
	}
	if failed {
		os.Exit(1)
	}
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

// sorted tells whether a list of models is in order and has one of them.
func sorted(names []string, name string) error {
	for i := 1; i < len(names); i++ {
		if names[i-1] >= names[i] {
			return fmt.Errorf("models: %q is not in order", names)
		}
	}
	if !strings.Contains("\n"+strings.Join(names, "\n")+"\n", "\n"+name+"\n") {
		return fmt.Errorf("models: %q is not among %q", name, names)
	}
	return nil
}

// A failure is an error as a program sees it.
type failure struct {
	Status    int
	Kind      string // its code (OpenAI) or type (Anthropic)
	RequestID bool
}

// failures compares errors with what was to be seen. The zero failure is an
// error that is no answer with a status, as in the middle of a stream.
func failures(describe func(error) (failure, bool), got map[string]error, want map[string]failure) error {
	var all []error
	for name, err := range got {
		f, ok := describe(err)
		if err == nil || ok != (want[name] != failure{}) || f != want[name] {
			all = append(all, fmt.Errorf("error %s: got %+v (%w), want %+v", name, f, err, want[name]))
		}
	}
	return errors.Join(all...)
}
