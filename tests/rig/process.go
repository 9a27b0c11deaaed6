package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// StartLimit is how long a process may take until it serves, on a busy machine.
const StartLimit = 2 * time.Minute

// tailBytes is the size of the output in errors.
const tailBytes = 4000

// A Process is a command that can be started, ended in several ways, and started again. The output of all runs
// is in one file.
type Process struct {
	Name    string
	LogPath string
	Env     []string // in addition to that of this process
	// Ended is called when the process has ended unasked. It may be nil.
	Ended func(error)

	command func() *exec.Cmd // of the next life

	mu     sync.Mutex
	cmd    *exec.Cmd     // of the present life, or the last one
	done   chan struct{} // closed when that life has ended
	ending bool          // it is meant to end
	began  int64         // size of the log when it began
}

// NewProcess returns a process that has not been started. It runs in the folder,
// where its log gets a name that no other process has.
func NewProcess(dir, name string, command func() *exec.Cmd) (*Process, error) {
	for n := 1; ; n++ {
		path := filepath.Join(dir, name+".log")
		if n > 1 {
			path = filepath.Join(dir, fmt.Sprintf("%s-%d.log", name, n))
		}
		log, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("creating the log of %s: %w", name, err)
		}
		return &Process{Name: name, LogPath: path, command: command}, log.Close()
	}
}

// Start starts the process, which must not be running.
func (p *Process) Start() error { return p.start(nil) }

// StartAnnounced starts the process and returns the first line of its standard
// output, which does not go to the log.
func (p *Process) StartAnnounced() (line string, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("making a pipe: %w", err)
	}
	defer r.Close()
	err = p.start(w)
	w.Close() // the process has its own
	if err != nil {
		return "", err
	}
	_ = r.SetReadDeadline(time.Now().Add(StartLimit)) // pipes have deadlines
	if line, err = bufio.NewReader(r).ReadString('\n'); err != nil {
		return "", fmt.Errorf("waiting for %s to announce itself: %w; its last output:\n%s", p.Name, err, p.Tail())
	}
	return strings.TrimSpace(line), nil
}

// start starts the process. What its command does not direct elsewhere goes to
// the log; stdout, if not nil, is its standard output.
func (p *Process) start(stdout *os.File) error {
	log, err := os.OpenFile(p.LogPath, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", p.Name, err)
	}
	defer log.Close()
	began, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("finding the end of the log of %s: %w", p.Name, err)
	}
	cmd := p.command()
	if cmd.Dir == "" {
		cmd.Dir = filepath.Dir(p.LogPath)
	}
	cmd.Env = slices.Concat(os.Environ(), p.Env, cmd.Env)
	if stdout != nil {
		cmd.Stdout = stdout
	} else if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	if cmd.Stderr == nil {
		cmd.Stderr = log
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	tie(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	done := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.done, p.ending, p.began = cmd, done, false, began
	p.mu.Unlock()
	go p.watch(cmd, done)
	return nil
}

// watch waits for the end of a run.
func (p *Process) watch(cmd *exec.Cmd, done chan struct{}) {
	err := cmd.Wait()
	if err == nil {
		err = errors.New("exit code 0")
	}
	p.mu.Lock()
	asked := p.ending
	p.mu.Unlock()
	if !asked && p.Ended != nil {
		p.Ended(fmt.Errorf("%s has ended by itself: %w; its last output:\n%s", p.Name, err, p.Tail()))
	}
	close(done)
}

// life returns the current run. With ending, the end of the process is expected from now on.
func (p *Process) life(ending bool) (*exec.Cmd, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending = p.ending || ending
	return p.cmd, p.done
}

// Pid returns the process id.
func (p *Process) Pid() int {
	cmd, _ := p.life(false)
	return cmd.Process.Pid
}

// Running reports whether the process has been started and has not ended.
func (p *Process) Running() bool {
	cmd, _ := p.life(false)
	return cmd != nil && p.State() == nil
}

// State returns how the process ended; nil before that.
func (p *Process) State() *os.ProcessState {
	cmd, done := p.life(false)
	select {
	case <-done:
		return cmd.ProcessState
	default:
		return nil
	}
}

// Signal sends a signal.
func (p *Process) Signal(s syscall.Signal) error {
	cmd, _ := p.life(s == syscall.SIGTERM || s == syscall.SIGINT)
	if err := cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("sending %v to %s: %w", s, p.Name, err)
	}
	return nil
}

// Kill ends the process as kill -9 does, and returns when it is gone.
func (p *Process) Kill() {
	cmd, done := p.life(true)
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill() // an error means that it has ended already
	<-done
}

// Terminate sends SIGTERM. A process that has not ended within limit is killed,
// which is an error.
func (p *Process) Terminate(limit time.Duration) error {
	cmd, done := p.life(true)
	if cmd == nil {
		return nil
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended already
	select {
	case <-done:
		return nil
	case <-time.After(limit):
		p.Kill()
		return fmt.Errorf("%s has not ended within %v of SIGTERM", p.Name, limit)
	}
}

// Wait waits for the process to end by itself and returns its exit code.
func (p *Process) Wait(ctx context.Context) (code int, err error) {
	cmd, done := p.life(true)
	select {
	case <-done:
		return cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("waiting for %s to end: %w", p.Name, context.Cause(ctx))
	}
}

// Log returns what the process has written since it was last started.
func (p *Process) Log() string {
	p.mu.Lock()
	began := p.began
	p.mu.Unlock()
	return p.read(began)
}

// Tail returns the end of what the process has written.
func (p *Process) Tail() string { return p.read(-tailBytes) }

// read returns the log from an offset on; below 0 it counts from the end.
func (p *Process) read(from int64) string {
	f, err := os.Open(p.LogPath)
	if err != nil {
		return fmt.Sprintf("(reading the log of %s: %v)", p.Name, err)
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil && from < 0 {
		from = max(0, size+from)
	}
	b, err := io.ReadAll(io.NewSectionReader(f, from, 1<<62))
	if err != nil {
		return fmt.Sprintf("(reading the log of %s: %v)", p.Name, err)
	}
	return string(b)
}

// Kilobytes returns the value of a line of the process's file in /proc, by the label that begins it, such as
// "Rss:" in smaps_rollup.
func (p *Process) Kilobytes(file, label string) (int, error) {
	path := fmt.Sprintf("/proc/%d/%s", p.Pid(), file)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("reading the memory of %s: %w", p.Name, err)
	}
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == label && fields[2] == "kB" {
			return strconv.Atoi(fields[1])
		}
	}
	return 0, fmt.Errorf("%s has no line %q", path, label)
}
