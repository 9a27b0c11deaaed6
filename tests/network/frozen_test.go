//go:build linux

package network

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// freeze stops a process and waits until all of its threads are stopped.
func freeze(t *testing.T, p *harness.Process) {
	t.Helper()
	p.Signal(t, syscall.SIGSTOP)
	harness.Poll(t, patience, "all threads being stopped", func(context.Context) error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid()))
		if err != nil {
			return err
		}
		for _, thread := range threads {
			b, err := os.ReadFile(thread)
			if err != nil {
				return err
			}
			// The state is after the name, which is in parentheses, see proc_pid_stat(5).
			if _, state, _ := strings.Cut(string(b), ") "); !strings.HasPrefix(state, "T") {
				return fmt.Errorf("one is running: %s", b)
			}
		}
		return nil
	})
}

// A frozen connector affects only its own requests: their clients get an error in their dialect. When it
// continues, it serves again.
func TestFrozen(t *testing.T) {
	long(t)
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "echo", upstream.Echo)
	r.serve(t, "ticker", upstream.SlowTokens(50*time.Millisecond, nil))
	other := r.connector(t, "other", map[string]any{})
	r.launch(t, other)
	other.WaitState(t, "online", patience)
	r.gateway.Deploy(t, "else", other.ID, "", "echo")
	running := r.follow(t, "ticker")
	running.wait(t, 3, patience)

	freeze(t, r.box.Process)
	frozen := time.Now()
	type result struct {
		answer harness.Answer
		err    error
		took   time.Duration
	}
	ask := func(path, body string) chan result {
		done := make(chan result, 1)
		req := r.Request(t.Context(), t, http.MethodPost, path, body)
		go func() {
			start := time.Now()
			a, err := r.Send(req)
			done <- result{a, err, time.Since(start)}
		}()
		return done
	}
	chat := ask("/v1/chat/completions", harness.Chat("echo", ""))
	messages := ask("/v1/messages", `{"model":"echo","max_tokens":9,"messages":[{"role":"user","content":"x"}]}`)
	for range time.Tick(time.Second) {
		if took := r.waitAnswer(t, "else", patience); took > 20*time.Second { // less than the timeout of the frozen connector
			t.Errorf("a request to another connector took %v", took)
		}
		if time.Since(frozen) > 25*time.Second {
			break
		}
	}
	// QUIC closes a connection after 15 s of silence. A request restarts this timeout until the gateway stops
	// sending.
	const bound = time.Minute + patience
	for name, done := range map[string]chan result{"chat completions": chat, "messages": messages} {
		select {
		case got := <-done:
			t.Logf("%s: status %d after %v: %s", name, got.answer.Status, got.took.Round(100*time.Millisecond), got.answer.Body)
			want := `{"error":{"message":"`
			if name == "messages" {
				want = `{"type":"error","error":{"type":"`
			}
			if got.err != nil || got.answer.Status/100 != 5 || !strings.HasPrefix(got.answer.Body, want) {
				t.Errorf("%s: %v, status %d, %s", name, got.err, got.answer.Status, got.answer.Body)
			}
		case <-time.After(time.Until(frozen.Add(bound))):
			t.Errorf("the request of %s has waited for %v", name, time.Since(frozen))
		}
	}
	running.end(t)
	if running.err != nil || !strings.HasPrefix(running.last, streamError) {
		t.Errorf("the stream ended with %q, %v", running.last, running.err)
	}
	r.box.WaitState(t, "offline", patience)
	r.box.Process.Signal(t, syscall.SIGCONT)
	t.Logf("back after %v", r.waitAnswer(t, "echo", patience).Round(100*time.Millisecond))
}

// A freeze that is shorter than two missed pings, like that of a laptop whose lid is closed for a moment, causes
// no error.
func TestFrozenShortly(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "echo", upstream.Echo)
	freeze(t, r.box.Process)
	req := r.Request(t.Context(), t, http.MethodPost, "/v1/chat/completions", harness.Chat("echo", ""))
	time.AfterFunc(2*time.Second, func() { _ = syscall.Kill(r.box.Process.Pid(), syscall.SIGCONT) })
	a, err := r.Send(req)
	if err != nil || a.Status != http.StatusOK {
		t.Errorf("%v, status %d: %s", err, a.Status, a.Body)
	}
}
