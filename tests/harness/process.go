package harness

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/rig/freeport"
)

// tailLines is how much of a process's output a failed test shows.
const tailLines = 60

// A Process is a process of a test.
type Process struct{ *rig.Process }

// StartProcess starts a command with its output in a file of dir. It ends with
// the test.
func StartProcess(t testing.TB, dir, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p, err := rig.NewProcess(dir, name, func() *exec.Cmd { return cmd })
	return start(t, p, err)
}

// StartProcess starts a command in the gateway's folder. It ends with the test,
// and must log no secrets.
func (g *Gateway) StartProcess(t testing.TB, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	p, err := g.Rig.Process(name, func() *exec.Cmd { return cmd })
	return start(t, p, err)
}

func start(t testing.TB, p *rig.Process, err error) *Process {
	t.Helper()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return keep(t, p)
}

// keep kills a process when the test ends and, if the test failed, logs the end
// of its output.
func keep(t testing.TB, p *rig.Process) *Process {
	t.Cleanup(func() {
		state := "it ran till now"
		if !p.Running() {
			state = "it ended before: " + p.State().String()
		}
		p.Kill()
		if t.Failed() {
			log, _ := os.ReadFile(p.LogPath) // as much as there is
			lines := strings.Split(strings.TrimRight(string(log), "\n"), "\n")
			t.Logf("--- last output of %s (%s) ---\n%s", p.Name, state, strings.Join(lines[max(0, len(lines)-tailLines):], "\n"))
		}
	})
	return &Process{p}
}

// Signal sends a signal to the process.
func (p *Process) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// WaitExit waits for the process to end by itself and returns its exit code.
func (p *Process) WaitExit(t testing.TB, limit time.Duration) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	code, err := p.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// WaitLog waits until the process has written a text.
func (p *Process) WaitLog(t testing.TB, text string, limit time.Duration) {
	t.Helper()
	Poll(t, limit, "the log of "+p.Name+" having "+text, func(context.Context) error {
		if !strings.Contains(p.Log(), text) {
			return errors.New("it does not:\n" + p.Tail())
		}
		return nil
	})
}

// FreeAddr is [freeport.Addr].
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// Poll calls probe until it returns nil, and fails the test with its last
// error when limit has passed.
func Poll(t testing.TB, limit time.Duration, what string, probe func(context.Context) error) {
	t.Helper()
	if err := rig.Poll(context.Background(), limit, 10*time.Millisecond, what, probe); err != nil {
		t.Fatal(err)
	}
}

// Root returns the repository's folder.
func Root(t testing.TB) string {
	t.Helper()
	root, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}
