// Package proc runs real processes for tests: it keeps their output, shows it
// when a test fails, hands out loopback ports, and leaves nothing running.
package proc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// tailLines is how much of a process's output a failed test shows.
const tailLines = 60

// A Process is a running command whose output goes to a file.
type Process struct {
	Name    string
	LogPath string

	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	err  error         // of Wait; valid once done is closed
}

// Start runs cmd with its output in a file of dir. When the test ends the
// process is killed, and if the test failed the end of its output is logged.
func Start(t testing.TB, dir, name string, cmd *exec.Cmd) *Process {
	t.Helper()
	log, err := os.CreateTemp(dir, name+"-*.log")
	if err != nil {
		t.Fatalf("creating the log of %s: %v", name, err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", name, err)
	}
	p := &Process{Name: name, LogPath: log.Name(), cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		state := "it ran till now"
		if !p.Running() {
			state = "it ended before: " + p.cmd.ProcessState.String()
		}
		p.Kill()
		if t.Failed() {
			t.Logf("--- last output of %s (%s) ---\n%s", name, state, tail(p.Log()))
		}
	})
	return p
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Kill ends the process as kill -9 does, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended already
	<-p.done
}

// Signal sends a signal to the process.
func (p *Process) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("sending %v to %s: %v", s, p.Name, err)
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// WaitExit waits for the process to end by itself and returns its exit code.
func (p *Process) WaitExit(t testing.TB, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		t.Fatalf("%s has not ended within %v", p.Name, limit)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Running tells whether the process is still there.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Log returns all that the process has written so far.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.LogPath)
	if err != nil {
		return fmt.Sprintf("(reading the log of %s: %v)", p.Name, err)
	}
	return string(b)
}

func tail(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}

// ports remembers which ports this process has handed out.
var ports struct {
	sync.Mutex
	taken map[int]bool
}

// FreeAddr returns a loopback address, "127.0.0.1:port", that is free for TCP
// and UDP and that no other caller in this process gets.
//
// The port is below the range from which the kernel picks the ports of
// outgoing connections: a server that is killed and started again finds it
// free still.
func FreeAddr(t testing.TB) string {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	for range 1000 {
		port := 18000 + rand.IntN(14000)
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		if ports.taken[port] || !Free(addr) {
			continue
		}
		if ports.taken == nil {
			ports.taken = map[int]bool{}
		}
		ports.taken[port] = true
		return addr
	}
	t.Fatal("found no free port between 18000 and 32000")
	return ""
}

// Free tells whether nobody listens on an address over TCP or UDP.
func Free(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer l.Close()
	p, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	return p.Close() == nil
}

// Poll calls probe until it returns nil, and fails the test with its last
// error when limit has passed.
func Poll(t testing.TB, limit time.Duration, what string, probe func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := errors.New("not tried")
	for ctx.Err() == nil {
		// A probe that was cut off by the limit says nothing of its own.
		if e := probe(ctx); e == nil {
			return
		} else if ctx.Err() == nil {
			err = e
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatalf("%s within %v: %v", what, limit, err)
}

// Root returns the repository's folder: the nearest one above the working
// directory that holds xcaddy.sh.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the working directory: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "xcaddy.sh")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("finding the repository: no folder above holds xcaddy.sh")
		}
		dir = parent
	}
}

// Lock takes an exclusive lock on a file, across processes: tests of several
// packages run at the same time.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
