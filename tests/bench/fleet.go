package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A fleet is the processes of one run and the folder of their files.
type fleet struct {
	dir      string
	children []*child
	// fail ends the run when a process has ended that should not.
	fail context.CancelCauseFunc
}

// A child is a process that the run has started.
type child struct {
	name    string
	cmd     *exec.Cmd
	logPath string
	done    chan struct{} // closed when it has ended
	ending  chan struct{} // closed when it is meant to end
}

// newFleet makes a fleet without processes. The context that it returns ends
// with the cause when one of its processes ends unasked.
func newFleet(ctx context.Context) (context.Context, *fleet, error) {
	dir, err := os.MkdirTemp("", "postern-bench-")
	if err != nil {
		return nil, nil, fmt.Errorf("creating a folder: %w", err)
	}
	ctx, fail := context.WithCancelCause(ctx)
	return ctx, &fleet{dir: dir, fail: fail}, nil
}

// start starts a process with its home in the fleet's folder and its output in
// a file there.
func (f *fleet) start(name string, cmd *exec.Cmd) (*child, error) {
	log, err := os.Create(filepath.Join(f.dir, fmt.Sprintf("%s-%d.log", name, len(f.children))))
	if err != nil {
		return nil, fmt.Errorf("creating the log of %s: %w", name, err)
	}
	defer log.Close()
	if cmd.Stderr == nil {
		cmd.Stderr = log
	}
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.Dir = f.dir
	cmd.Env = slices.Concat(os.Environ(), f.environment(), cmd.Env)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = attributes()
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	c := &child{name: name, cmd: cmd, logPath: log.Name(), done: make(chan struct{}), ending: make(chan struct{})}
	f.children = append(f.children, c)
	go func() {
		err := cmd.Wait()
		select {
		case <-c.ending:
		default:
			f.fail(fmt.Errorf("%s has ended by itself: %v; its last output:\n%s", name, err, c.tail()))
		}
		close(c.done)
	}()
	return c, nil
}

// environment gives processes their home in the fleet's folder, where Caddy also
// keeps the authority that signs its certificates: connectors trust it. No proxy
// of the machine is in the way of what is measured.
func (f *fleet) environment() []string {
	return []string{
		"HOME=" + f.dir, "XDG_DATA_HOME=" + f.dir, "XDG_CONFIG_HOME=" + f.dir,
		"SSL_CERT_FILE=" + filepath.Join(f.dir, "caddy", "pki", "authorities", "local", "root.crt"),
		"HTTPS_PROXY=", "https_proxy=", "NO_PROXY=", "no_proxy=",
	}
}

// startRole starts another process of this program in a role, and returns the
// line that it announces.
func (f *fleet) startRole(name, role string, input *os.File) (*child, string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, "", fmt.Errorf("making a pipe: %w", err)
	}
	defer r.Close()
	cmd := program().InRole(role)
	cmd.Stdin, cmd.Stdout = input, w
	c, err := f.start(name, cmd)
	w.Close() // the process has its own
	if err != nil {
		return nil, "", err
	}
	_ = r.SetReadDeadline(time.Now().Add(startLimit)) // pipes have deadlines
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		return nil, "", fmt.Errorf("waiting for %s to announce itself: %w; its last output:\n%s", name, err, c.tail())
	}
	return c, strings.TrimSpace(line), nil
}

// startLimit is how long a process may take until it serves.
const startLimit = 20 * time.Second

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop asks the process to end, and kills it when it has not ended in time.
func (c *child) stop() {
	select {
	case <-c.ending: // stopped before
	default:
		close(c.ending)
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended already
	select {
	case <-c.done:
	case <-time.After(3 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

// tail returns the end of what the process has written.
func (c *child) tail() string {
	b, err := os.ReadFile(c.logPath)
	if err != nil {
		return fmt.Sprintf("(reading its log: %v)", err)
	}
	return string(b[max(0, len(b)-2000):])
}

// close ends all processes, the newest first, and removes the folder.
func (f *fleet) close() {
	for i := len(f.children) - 1; i >= 0; i-- {
		f.children[i].stop()
	}
	f.fail(nil)
	_ = os.RemoveAll(f.dir) // a folder of temporary files
}

// freeAddrs returns n different loopback addresses that were free for TCP and
// UDP a moment ago.
func freeAddrs(n int) ([]string, error) {
	addrs := make([]string, 0, n)
	for len(addrs) < n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free address: %w", err)
		}
		defer l.Close() // after the last one, so that none comes twice
		u, err := net.ListenPacket("udp", l.Addr().String())
		if err != nil {
			continue
		}
		defer u.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}
