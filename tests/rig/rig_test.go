package rig

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/rig/freeport"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// newRig returns a rig whose binaries do nothing, and the context that ends when
// one of its processes ends unasked.
func newRig(t *testing.T) (context.Context, *Rig) {
	t.Helper()
	ctx, fail := context.WithCancelCause(t.Context())
	bin := t.TempDir()
	for _, name := range []string{"caddy", "connector"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r, err := New(Options{Dir: t.TempDir(), Bin: bin, Ended: fail})
	if err != nil {
		t.Fatal(err)
	}
	return ctx, r
}

// shell returns a process that runs a script of the shell.
func shell(t *testing.T, r *Rig, script string) *Process {
	t.Helper()
	p, err := r.Process("shell", func() *exec.Cmd { return exec.Command("sh", "-c", script) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestProcessLives(t *testing.T) {
	ctx, r := newRig(t)
	p := shell(t, r, "echo said >&2; echo ready; exec sleep 600")
	for range 2 {
		if p.Running() {
			t.Error("it runs before it was started")
		}
		line, err := p.StartAnnounced()
		if err != nil || line != "ready" || !p.Running() {
			t.Fatalf("it announces %q, %v", line, err)
		}
		if err := p.Terminate(time.Minute); err != nil {
			t.Error(err)
		}
		if p.Signal(syscall.SIGCONT) == nil {
			t.Error("a process that has ended takes a signal")
		}
	}
	if now, all := strings.Count(p.Log(), "said"), strings.Count(p.Tail(), "said"); now != 1 || all != 2 {
		t.Errorf("the log has the output of %d lives, %d of them the last", all, now)
	}
	if context.Cause(ctx) != nil {
		t.Errorf("an end that was asked for fails the run: %v", context.Cause(ctx))
	}
	if other := shell(t, r, ""); other.LogPath == p.LogPath {
		t.Error("two processes share a log")
	}
}

func TestProcessEndsUnasked(t *testing.T) {
	ctx, r := newRig(t)
	p := shell(t, r, "echo what went wrong; exit 3")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	wait.For(t, ctx.Done(), "the report")
	if err := context.Cause(ctx); !strings.Contains(err.Error(), "shell has ended by itself") ||
		!strings.Contains(err.Error(), "what went wrong") {
		t.Errorf("the run's error is %v", err)
	}
	if code, err := p.Wait(t.Context()); code != 3 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
}

func TestProcessIgnoresTheSignal(t *testing.T) {
	_, r := newRig(t)
	p := shell(t, r, "trap '' TERM; echo ready; while :; do sleep 0.05; done")
	if _, err := p.StartAnnounced(); err != nil {
		t.Fatal(err)
	}
	if p.Terminate(100*time.Millisecond) == nil {
		t.Error("a process that does not end is no error")
	}
}

// Close ends everything, and finds secrets wherever they are in a log.
func TestClose(t *testing.T) {
	_, r := newRig(t)
	r.Hide("s3", "sk-svc-a-long-secret", "sk-svc-b-long-secret")
	for _, script := range []string{
		"echo ready; exec sleep 600", "echo harmless long-secret >&2; echo ready",
		"echo x sk-svc-b-long-secret >&2; echo ready", "echo s3 >&2; echo ready",
	} {
		p := shell(t, r, script)
		p.Ended = nil
		if _, err := p.StartAnnounced(); err != nil {
			t.Fatal(err)
		}
	}
	err := r.Close()
	if err == nil || strings.Count(err.Error(), "<secret>") != 2 ||
		!strings.Contains(err.Error(), "number 2: …x <secret>") || !strings.Contains(err.Error(), "number 0: …<secret>") {
		t.Errorf("two logs hold a secret: %v", err)
	}
	for _, p := range r.Processes() {
		if p.Running() {
			t.Errorf("%s still runs", p.Name)
		}
	}
}

func TestFreeAddrsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		a, err := freeport.Addr()
		if err != nil || seen[a] {
			t.Fatalf("%s, %v", a, err)
		}
		seen[a] = true
	}
}

func TestPoll(t *testing.T) {
	const every = time.Millisecond
	tries := 0
	err := Poll(t.Context(), time.Minute, every, "a third try", func(context.Context) error {
		if tries++; tries < 3 {
			return os.ErrNotExist
		}
		return nil
	})
	if err != nil || tries != 3 {
		t.Errorf("%d tries, %v", tries, err)
	}
	never := func(context.Context) error { return os.ErrNotExist }
	if err := Poll(t.Context(), 0, every, "it", never); !errors.Is(err, os.ErrNotExist) ||
		!strings.HasPrefix(err.Error(), "it has not happened within 0s") {
		t.Errorf("after its limit: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(os.ErrClosed)
	if err := Poll(ctx, time.Minute, every, "it", never); !errors.Is(err, os.ErrClosed) {
		t.Errorf("at the end of its context: %v", err)
	}
}

func TestParseHeap(t *testing.T) {
	page := []byte("heap profile: 1: 2 [3: 4] @ heap/1048576\n\n# runtime.MemStats\n# Alloc = 5\n# TotalAlloc = 600\n# " +
		"Mallocs = 70\n# HeapAlloc = 8\n# Stack = 9 / 10\n")
	got, err := parseHeap(page)
	if want := (Heap{Live: 8, Stacks: 9}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if _, err := parseHeap([]byte("not a page")); err == nil {
		t.Error("another page is accepted")
	}
}
