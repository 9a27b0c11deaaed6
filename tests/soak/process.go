package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A process is a command that is started, ended in many ways, and started
// again. Its output over all of its lives is in one file.
type process struct {
	name    string
	dir     string
	logPath string
	make    func() *exec.Cmd
	// fail ends the run when the process has ended unasked.
	fail context.CancelCauseFunc

	mu     sync.Mutex
	cmd    *exec.Cmd
	done   chan struct{} // closed when this life has ended
	ending bool          // it is meant to end
}

// startLimit is how long a process may take until it serves, on a busy machine.
const startLimit = time.Minute

// start starts the process. With announced it returns the first line of its
// standard output, which goes to the log otherwise.
func (p *process) start(announced bool) (line string, err error) {
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("opening the log of %s: %w", p.name, err)
	}
	defer log.Close()
	cmd := p.make()
	cmd.Dir = p.dir
	cmd.Env = append(append(os.Environ(), cmd.Env...), "HOME="+p.dir, "NO_COLOR=1",
		"XDG_DATA_HOME="+filepath.Join(p.dir, "data"), "XDG_CONFIG_HOME="+filepath.Join(p.dir, "config"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes()
	var r, w *os.File
	if announced {
		if r, w, err = os.Pipe(); err != nil {
			return "", fmt.Errorf("making a pipe: %w", err)
		}
		defer r.Close()
		cmd.Stdout = w
	}
	if err = cmd.Start(); w != nil {
		w.Close() // the process has its own
	}
	if err != nil {
		return "", fmt.Errorf("starting %s: %w", p.name, err)
	}
	p.begin(cmd)
	if !announced {
		return "", nil
	}
	_ = r.SetReadDeadline(time.Now().Add(startLimit)) // pipes have deadlines
	if line, err = bufio.NewReader(r).ReadString('\n'); err != nil {
		return "", fmt.Errorf("waiting for %s to announce itself: %w; its last output:\n%s", p.name, err, p.tail())
	}
	return strings.TrimSpace(line), nil
}

// begin watches a new life of the process.
func (p *process) begin(cmd *exec.Cmd) {
	done := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.done, p.ending = cmd, done, false
	p.mu.Unlock()
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		asked := p.ending
		p.mu.Unlock()
		if !asked {
			p.fail(fmt.Errorf("%s has ended by itself: %w; its last output:\n%s", p.name, ended(err), p.tail()))
		}
		close(done)
	}()
}

// ended makes an error of an exit without one.
func ended(err error) error {
	if err == nil {
		return errors.New("exit code 0")
	}
	return err
}

// life returns what belongs to the present life, and says whether it is meant
// to end from here on.
func (p *process) life(ending bool) (*exec.Cmd, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending = p.ending || ending
	return p.cmd, p.done
}

func (p *process) pid() int {
	cmd, _ := p.life(false)
	return cmd.Process.Pid
}

// signal sends a signal that does not end the process.
func (p *process) signal(s syscall.Signal) error {
	cmd, _ := p.life(false)
	if err := cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("sending %v to %s: %w", s, p.name, err)
	}
	return nil
}

// kill ends the process as kill -9 does, and returns when it is gone.
func (p *process) kill() {
	cmd, done := p.life(true)
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill() // an error means that it has ended already
	<-done
}

// terminate asks the process to end, and kills it after limit, which is an
// error.
func (p *process) terminate(limit time.Duration) error {
	cmd, done := p.life(true)
	if cmd == nil {
		return nil
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended already
	select {
	case <-done:
		return nil
	case <-time.After(limit):
		p.kill()
		return fmt.Errorf("%s has not ended within %v of SIGTERM", p.name, limit)
	}
}

// tail returns the end of what the process has written.
func (p *process) tail() string {
	f, err := os.Open(p.logPath)
	if err != nil {
		return fmt.Sprintf("(reading its log: %v)", err)
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-2000), io.SeekStart) // it can be sought: Seek above did
	}
	b, _ := io.ReadAll(f) // as much as there is
	return string(b)
}
