// Package caught has panics for tests, and checks what a program logs about them.
package caught

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// Tests cause panics again and again, and expect each of them in the log.
func init() { panics.Pause = 0 }

// Secret is the value that tests panic with. No log may have it.
const Secret = "a prompt of a client"

// Log is a log with the panics that a program has recovered from.
type Log struct {
	*slog.Logger

	mu     sync.Mutex
	text   bytes.Buffer
	panics string // see PanicAt
}

// PanicAt makes the log panic when it gets a line with this text, "" never.
func (l *Log) PanicAt(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.panics = text
}

// New returns an empty log.
func New() *Log {
	l := new(Log)
	l.Logger = slog.New(slog.NewTextHandler(l, nil))
	return l
}

// Write implements io.Writer for the handler.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.panics != "" && strings.Contains(string(p), l.panics) && !strings.Contains(string(p), "panic") {
		panic(Secret)
	}
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Expect waits for at least this number of panics that have interrupted the given work. Each must be logged
// with its type and stack, and without its text.
func (l *Log) Expect(t testing.TB, doing string, times int) {
	t.Helper()
	line := fmt.Sprintf("doing=%q type=string", doing)
	wait.Until(t, "the panic is logged", func() bool { return strings.Count(l.String(), line) >= times })
	text := l.String()
	if !strings.Contains(text, "goroutine ") {
		t.Errorf("the log lacks the stacks:\n%s", text)
	}
	if strings.Contains(text, Secret) {
		t.Errorf("the log has the value of a panic:\n%s", text)
	}
}
