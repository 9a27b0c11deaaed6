package panics

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// forget makes the log have each place again.
func forget() {
	mu.Lock()
	defer mu.Unlock()
	clear(logged)
}

// forged imitates an error of the runtime, and contains a secret.
type forged struct{ error }

func (forged) RuntimeError() {}

// The log has the type and the stack of each panic, but no text that may be a prompt.
func TestRecover(t *testing.T) {
	forget()
	const secret = "the prompt"
	var none []int
	var empty map[string]int
	for name, c := range map[string]struct {
		panics     func()
		kind, text string // in the log
	}{
		"index":   {func() { _ = none[len(secret)] }, "runtime.boundsError", "index out of range [10] with length 0"},
		"nil map": {func() { empty[secret] = 1 }, "runtime.plainError", "assignment to entry in nil map"},
		"type": {
			func() { _ = any(secret).(int) }, "*runtime.TypeAssertionError",
			"interface conversion: interface {} is string, not int",
		},
		"unhashable": {
			func() { _ = map[any]int{}[[]string{secret}] }, "maps.unhashableTypeError",
			"hash of unhashable type: []string",
		},
		"string": {func() { panic(secret) }, "type=string", "panic with a string"},
		"error":  {func() { panic(errors.New(secret)) }, "*errors.errorString", "panic with a *errors.errorString"},
		"wrapped": {
			func() { panic(fmt.Errorf("%s: %w", secret, wrapped())) }, "*fmt.wrapError",
			"panic with a *fmt.wrapError",
		},
		"forged":       {func() { panic(forged{errors.New(secret)}) }, "panics.forged", "panic with a panics.forged"},
		"nil argument": {func() { panic(nil) }, "*runtime.PanicNilError", "panic called with nil argument"},
	} {
		t.Run(name, func(t *testing.T) { // not parallel: it counts panics
			var out bytes.Buffer
			log := slog.New(slog.NewTextHandler(&out, nil))
			before := Total()
			woken := false
			func() {
				defer func() { woken = true }()
				defer Recover(log, "testing a panic")
				c.panics()
			}()
			got := out.String()
			for _, want := range []string{c.kind, c.text, "testing a panic", "panics_test.go"} {
				if !strings.Contains(got, want) {
					t.Errorf("the log lacks %q: %s", want, got)
				}
			}
			if strings.Contains(got, secret) {
				t.Errorf("the log has the value: %s", got)
			}
			if !woken || Total() != before+1 {
				t.Errorf("woken: %v; counted: %d", woken, Total()-before)
			}
		})
	}
}

// wrapped returns an error of the runtime.
func wrapped() (err error) {
	defer func() { err = recover().(error) }()
	var none []int
	_ = none[1]
	return nil
}

// A panic that is passed to another goroutine is counted once, and keeps its stack.
func TestPassedOn(t *testing.T) {
	forget()
	before := Total()
	done := make(chan *Error)
	go func() {
		defer func() { done <- Caught(recover()) }()
		first()
	}()
	passed := <-done
	var out bytes.Buffer
	err := Do(slog.New(slog.NewTextHandler(&out, nil)), "waiting", func() error { panic(passed) })
	if !errors.Is(err, passed) || Total() != before+1 || !strings.Contains(out.String(), "panics.first") {
		t.Errorf("%v, counted %d: %s", err, Total()-before, out.String())
	}
	if Caught(nil) != nil {
		t.Error("no panic is one")
	}
	if err := Do(nil, "", func() error { return errors.ErrUnsupported }); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

func first() { panic("first") }

// The log has one panic of each place in a minute, however many peers cause. All are counted.
func TestManyPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forget()
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		before := Total()
		cause := func(n int, f func()) (logged string) {
			for range n {
				func() {
					defer Recover(log, "testing many panics")
					f()
				}()
			}
			defer out.Reset()
			return out.String()
		}
		deep := func() { deeper(0) }
		if got := cause(1000, first); strings.Count(got, "\n") != 1 || !strings.Contains(got, "panics.first") {
			t.Errorf("1000 panics: %s", got)
		}
		if got := cause(1, deep); strings.Count(got, "\n") != 1 || !strings.Contains(got, "panics.deeper") {
			t.Errorf("a panic at another place: %s", got)
		}
		time.Sleep(time.Minute - 1)
		if got := cause(1, first); got != "" {
			t.Errorf("before the minute is over: %s", got)
		}
		time.Sleep(time.Nanosecond)
		if got := cause(2, first); strings.Count(got, "\n") != 1 ||
			!strings.Contains(got, fmt.Sprint("total=", before+1003)) {
			t.Errorf("after a minute: %s", got)
		}
		lines := 0
		for depth := range 100 { // of input
			lines += strings.Count(cause(1, func() { deeper(depth) }), "\n")
		}
		if lines > 12 {
			t.Errorf("panics at 100 depths: %d lines", lines)
		}
		if n := Total() - before; n != 1104 {
			t.Errorf("counted %d panics", n)
		}
	})
}

//go:noinline
func deeper(depth int) {
	if depth == 0 {
		panic("deep")
	}
	deeper(depth - 1)
}
