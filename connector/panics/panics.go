// Package panics lets a panic end the request, session or item that it interrupts, instead of the
// process. A goroutine that processes bytes of a peer begins with
//
//	defer panics.Recover(log, "reading from a connector")
//
// Defers must release its locks, and wake the goroutines that wait for it.
package panics

import (
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// total is the number of panics.
var total atomic.Uint64

// Total returns how many panics were recovered.
func Total() uint64 { return total.Load() }

// Recover ends a panic of the function that defers it, and logs what that function was doing.
func Recover(log *slog.Logger, doing string) {
	if p := Caught(recover()); p != nil {
		p.Log(log, doing)
	}
}

// Do calls f. A panic of f is logged, and returned as an *[Error].
func Do(log *slog.Logger, doing string, f func() error) (err error) {
	defer func() {
		if p := Caught(recover()); p != nil {
			p.Log(log, doing)
			err = p
		}
	}()
	return f()
}

// Error is a panic that was recovered. A goroutine without a log passes it to the goroutine that
// waits for it, as an error or as another panic.
type Error struct {
	kind  string // the type of the value
	text  string // of an error of the runtime
	stack []byte
	place place
}

// place contains the innermost calls of a panic. The other calls can depend on input, such as its depth.
type place [5]uintptr

// Pause is the time from a log line about a place to the next one: peers can cause many panics. Tests change it.
var Pause = time.Minute

var (
	mu     sync.Mutex
	logged = make(map[place]time.Time) // the last line of each place
)

// Caught returns the result of recover as an Error, or nil for nil. Call it in the deferred
// function, whose stack is that of the panic.
func Caught(v any) *Error {
	switch v := v.(type) {
	case nil:
		return nil
	case *Error: // of another goroutine
		return v
	}
	total.Add(1)
	e := &Error{kind: fmt.Sprintf("%T", v), text: textOf(v), stack: debug.Stack()}
	runtime.Callers(2, e.place[:])
	return e
}

// textOf returns the text of an error of Go's runtime, such as an index out of range. All other
// values may contain a prompt or a secret, such as imitations of these errors in other packages.
func textOf(v any) string {
	err, ok := v.(runtime.Error)
	if !ok {
		return ""
	}
	t := reflect.TypeOf(v)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.PkgPath() != "runtime" && !strings.HasPrefix(t.PkgPath(), "internal/runtime/") {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "runtime error: ")
}

// Error implements error. The text is safe in logs.
func (e *Error) Error() string {
	if e.text != "" {
		return "panic: " + e.text
	}
	return "panic with a " + e.kind
}

// Log logs the panic with its stack and the number of all panics, if the last line about its place is older than
// [Pause]. doing names the work that it has interrupted.
func (e *Error) Log(log *slog.Logger, doing string) {
	mu.Lock()
	last, now := logged[e.place], time.Now()
	due := now.Sub(last) >= Pause || now.Before(last) // the clock was set back
	if due {
		logged[e.place] = now
	}
	mu.Unlock()
	if due {
		log.Error("recovered from a panic: this is a defect of the program, please report it", "doing", doing,
			"type", e.kind, "error", e.Error(), "total", Total(), "stack", string(e.stack))
	}
}
