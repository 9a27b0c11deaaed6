package update

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/postern-dev/postern/connector/text"
)

const (
	// UntilReplaced is a flag of the run command. The process ends when another one has taken
	// its tunnel over.
	UntilReplaced = "--until-replaced"

	// bridgeDrain is how long a bridge may finish its requests. The update does not wait for it.
	bridgeDrain = time.Hour
	// endTime bounds the wait for the end of a bridge without requests.
	endTime = 5 * time.Second
	// maxTail bounds the end of a log that is read for its last line, in bytes.
	maxTail = 4096

	pollPause = 100 * time.Millisecond
)

// Process is the state of a running connector.
type Process struct {
	PID     int
	Version string
	Online  bool
	State   string // as shown to users
}

// bridge is a process that keeps a connector's tunnel up. It may outlive this process.
type bridge struct {
	process *os.Process
	folder  string        // of its socket and log
	ended   chan struct{} // closed when it has ended
	err     error         // of its end
}

func (b *bridge) socket() string { return filepath.Join(b.folder, "control.sock") }
func (b *bridge) log() string    { return filepath.Join(b.folder, "log") }

// startBridge starts a program as a bridge, and waits until its tunnel is up.
func (u *Update) startBridge(ctx context.Context, program, config string) (*bridge, error) {
	folder, err := os.MkdirTemp("", "connector-")
	if err != nil {
		return nil, err
	}
	b := &bridge{folder: folder, ended: make(chan struct{})}
	if err := b.start(program, config); err != nil {
		b.clean()
		return nil, err
	}
	if err := u.awaitBridge(ctx, b); err != nil {
		b.stop()
		<-b.ended
		b.clean()
		return nil, err
	}
	return b, nil
}

// start starts the process. Its output goes to a file, as a pipe would break when this process
// ends. It gets no signals from this terminal.
func (b *bridge) start(program, config string) error {
	log, err := os.OpenFile(b.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(program, "run", UntilReplaced, "--socket", b.socket(), "--log-format", "text",
		"--drain-timeout", bridgeDrain.String())
	if config != "" {
		command.Args = append(command.Args, "--config", config)
	}
	command.Stdout, command.Stderr, command.SysProcAttr = log, log, apart
	if err := command.Start(); err != nil {
		return fmt.Errorf("it does not start: %w", err)
	}
	b.process = command.Process
	go func() {
		b.err = command.Wait()
		close(b.ended)
	}()
	return nil
}

// awaitBridge waits until the tunnel of a bridge is up.
func (u *Update) awaitBridge(ctx context.Context, b *bridge) error {
	limit := time.After(u.Timeout)
	for {
		p, err := u.Inspect(ctx, b.socket())
		if err == nil && p.Online {
			return nil
		}
		state := p.State
		if err != nil {
			state = "it has not answered: " + b.lastLine()
		}
		select {
		case <-b.ended:
			return fmt.Errorf("it ended without a tunnel (%w): %s", cmp.Or(b.err, errors.New("exit status 0")),
				b.lastLine())
		case <-limit:
			return fmt.Errorf("its tunnel is still down after %v: %s", u.Timeout, state)
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-time.After(pollPause):
		}
	}
}

// replaced reports whether another process has taken the tunnel over, and the bridge has
// finished its requests.
func (b *bridge) replaced() bool {
	select {
	case <-b.ended:
		return b.err == nil
	default:
		return false
	}
}

// leave waits for the end of the bridge, but not longer than patience. Then it removes the
// bridge's files: a bridge that finishes requests does not need them.
func (b *bridge) leave(patience time.Duration) (ended bool) {
	defer b.clean()
	select {
	case <-b.ended:
		return true
	case <-time.After(patience):
		return false
	}
}

// clean removes the bridge's files. Windows keeps those that are in use.
func (b *bridge) clean() { _ = os.RemoveAll(b.folder) }

// lastLine returns the last line of the bridge's log.
func (b *bridge) lastLine() string {
	content, err := os.ReadFile(b.log())
	if err != nil {
		return err.Error()
	}
	content = bytes.TrimSpace(content[max(0, len(content)-maxTail):])
	return text.Short(string(content[bytes.LastIndexByte(content, '\n')+1:]))
}
