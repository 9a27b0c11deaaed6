package up

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Process is a running process of a cluster, for the user.
type Process struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	URL  string `json:"url"` // of its HTTP API
	Log  string `json:"log"` // path
}

// child is a process that ends with this one.
type child struct {
	Process
	environment []string // in addition to that of this process
	argv        []string
	grace       time.Duration // from SIGTERM to SIGKILL

	stop context.CancelFunc // sends SIGTERM
	done chan struct{}      // closed when it has ended
	err  error              // how it has ended
}

// start starts the process. Its output goes to its log. If it ends before stop is called, it
// is sent to u.ended.
func (u *Run) start(c *child) error {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("creating the log of %s: %w", c.Name, err)
	}
	defer log.Close() // the process has its own
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Dir = filepath.Dir(c.Log)
	cmd.Env = append(os.Environ(), c.environment...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = c.grace
	cmd.SysProcAttr = ownGroup()
	release, err := guard(cmd)
	if err != nil {
		cancel()
		return fmt.Errorf("starting %s: %w", c.Name, err)
	}
	c.PID, c.stop, c.done = cmd.Process.Pid, cancel, make(chan struct{})
	go func() {
		c.err = cmd.Wait()
		release()
		close(c.done)
		if ctx.Err() == nil {
			u.ended <- c
		}
		cancel()
	}()
	return nil
}

// guard starts cmd, and a shell that kills it when this process ends, however that happens.
// release ends the shell: the process has ended.
func guard(cmd *exec.Cmd) (release func(), err error) {
	shell := exec.Command("sh", "-c", `read -r pid && { read -r end; kill -9 "$pid"; }`)
	shell.SysProcAttr = ownGroup()
	pipe, err := shell.StdinPipe() // it is closed when this process ends
	if err != nil {
		return nil, err
	}
	if err := shell.Start(); err != nil {
		return nil, err
	}
	release = func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
	}
	if err := cmd.Start(); err != nil {
		release()
		return nil, err
	}
	if _, err := fmt.Fprintln(pipe, cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		release()
		return nil, err
	}
	return release, nil
}

// await waits until the process is ready. It fails if the process ends.
func (c *child) await(ctx context.Context, ready func() bool) error {
	return poll(ctx, "waiting for "+c.Name+", whose log is "+c.Log, func() (bool, error) {
		select {
		case <-c.done:
			return false, fmt.Errorf("%s has ended while it started (%s); the end of its log, %s:\n%s", c.Name, c.reason(), c.Log, c.tail())
		default:
			return ready(), nil
		}
	})
}

// reason describes how the process has ended.
func (c *child) reason() string {
	if c.err == nil {
		return "exit status 0"
	}
	return c.err.Error()
}

// tail returns the end of the log.
func (c *child) tail() string {
	const bytes = 2000
	f, err := os.Open(c.Log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	size, _ := f.Seek(0, io.SeekEnd)
	data, err := io.ReadAll(io.NewSectionReader(f, max(0, size-bytes), bytes))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data))
}

// ending reports the end of the process, and how to start it again.
func (c *child) ending() string {
	var words []string
	if len(c.environment) > 0 {
		words = append(words, "env")
	}
	for _, word := range slices.Concat(c.environment, c.argv) {
		words = append(words, quoted(word))
	}
	return fmt.Sprintf("\n%s (pid %d) has ended: %s. Its log is %s.\nStart it again in another terminal; Ctrl-C ends it there:\n\n  %s\n\n",
		c.Name, c.PID, c.reason(), c.Log, strings.Join(words, " "))
}

// quoted returns a word for a shell.
func quoted(word string) string {
	if !strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("@%+=:,./_-", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
