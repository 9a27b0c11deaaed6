package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// shell is a process that runs a script of the shell.
func shell(t *testing.T, script string) (context.Context, *process) {
	t.Helper()
	ctx, fail := context.WithCancelCause(t.Context())
	dir := t.TempDir()
	p := &process{name: "shell", dir: dir, logPath: filepath.Join(dir, "shell.log"), fail: fail, make: func() *exec.Cmd { return exec.Command("sh", "-c", script) }}
	t.Cleanup(p.kill)
	return ctx, p
}

func TestProcessLives(t *testing.T) {
	ctx, p := shell(t, "echo said >&2; echo ready; exec sleep 600")
	for range 2 {
		line, err := p.start(true)
		if err != nil || line != "ready" {
			t.Fatalf("it announces %q, %v", line, err)
		}
		if err := freeze(ctx, p, time.Millisecond); err != nil {
			t.Error(err)
		}
		if err := p.terminate(time.Minute); err != nil {
			t.Error(err)
		}
		if p.signal(syscall.SIGCONT) == nil {
			t.Error("a process that has ended takes a signal")
		}
	}
	if got := strings.Count(p.tail(), "said"); got != 2 {
		t.Errorf("the log has the output of %d lives", got)
	}
	if context.Cause(ctx) != nil {
		t.Errorf("an end that was asked for fails the run: %v", context.Cause(ctx))
	}
}

func TestProcessEndsUnasked(t *testing.T) {
	ctx, p := shell(t, "echo what went wrong; exit 3")
	if _, err := p.start(false); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("nobody notices")
	}
	if err := context.Cause(ctx); !strings.Contains(err.Error(), "shell has ended by itself") || !strings.Contains(err.Error(), "what went wrong") {
		t.Errorf("the run's error is %v", err)
	}
}

func TestProcessIgnoresTheSignal(t *testing.T) {
	_, p := shell(t, "trap '' TERM; echo ready; while :; do sleep 0.05; done")
	if _, err := p.start(true); err != nil {
		t.Fatal(err)
	}
	if p.terminate(100*time.Millisecond) == nil {
		t.Error("a process that does not end is no error")
	}
}
