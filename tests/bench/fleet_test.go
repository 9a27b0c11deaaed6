package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/command"
)

func newTestFleet(t *testing.T) (context.Context, *fleet) {
	t.Helper()
	ctx, f, err := newFleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return ctx, f
}

func TestFleetEndsEverything(t *testing.T) {
	ctx, f := newTestFleet(t)
	polite, err := f.start("polite", exec.Command("sleep", "600"))
	if err != nil {
		t.Fatal(err)
	}
	stubborn, err := f.start("stubborn", exec.Command("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"))
	if err != nil {
		t.Fatal(err)
	}
	err = command.Until(ctx, 10*time.Second, poll, "ignoring the signal", func() error {
		if strings.Contains(stubborn.tail(), "ready") {
			return nil
		}
		return os.ErrNotExist
	})
	if err != nil {
		t.Fatal(err)
	}
	f.close()
	for _, c := range []*child{polite, stubborn} {
		select {
		case <-c.done:
		default:
			t.Errorf("%s is still running", c.name)
		}
		if _, err := c.used(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(f.dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestFleetNoticesAnEndedProcess(t *testing.T) {
	ctx, f := newTestFleet(t)
	if _, err := f.start("failing", exec.Command("sh", "-c", "echo what went wrong; exit 3")); err != nil {
		t.Fatal(err)
	}
	err := command.Pause(ctx, 10*time.Second)
	if err == nil || !strings.Contains(err.Error(), "failing has ended") || !strings.Contains(err.Error(), "what went wrong") {
		t.Errorf("the run's error is %v", err)
	}
}

func TestFreeAddrsDiffer(t *testing.T) {
	addrs, err := freeAddrs(20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, a := range addrs {
		if seen[a] {
			t.Errorf("%s comes twice", a)
		}
		seen[a] = true
	}
}

func TestCPUTimeGrows(t *testing.T) {
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
		continue
	}
	after, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after <= before {
		t.Errorf("CPU time went from %v to %v", before, after)
	}
	if _, err := cpuTime(1 << 23); err == nil {
		t.Error("a process that is not there has CPU time")
	}
}

// When a process ends in the middle of a measurement, that is the error, and
// not the broken connections that follow from it.
func TestRunSaysWhichProcessEnded(t *testing.T) {
	ctx, f := newTestFleet(t)
	o := tinyRun()
	o.Systems = []string{direct}
	b, err := newBuilder(f, o, loopback())
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.build(ctx, direct)
	if err != nil {
		t.Fatal(err)
	}
	o.Load = 30 * time.Second
	time.AfterFunc(200*time.Millisecond, func() { _ = b.upstream.child.cmd.Process.Kill() })
	if _, err = s.measureLoad(ctx, o, 4); err == nil {
		t.Fatal("a dead upstream is no error")
	}
	if err = explain(ctx, err); !strings.Contains(err.Error(), "upstream has ended by itself") {
		t.Errorf("the error is %v", err)
	}
}
