//go:build linux

package lab

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// A Namespace is a network namespace.
type Namespace struct{ fd int }

// own opens the namespace of the calling thread.
func own() (*Namespace, error) {
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the network namespace: %w", err)
	}
	return &Namespace{fd}, nil
}

// newNamespace makes a namespace that lasts as long as this process or one that
// was started in it.
func newNamespace() (n *Namespace, err error) {
	home, err := own()
	if err != nil {
		return nil, err
	}
	defer home.close()
	home.Do(func() { // which returns to its namespace
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("making a network namespace: %w", err)
			return
		}
		n, err = own()
	})
	return n, err
}

func (n *Namespace) close() { _ = unix.Close(n.fd) }

// Do calls f with the calling goroutine in the namespace. Sockets that f opens and processes that it starts
// stay there; goroutines that f starts do not.
func (n *Namespace) Do(f func()) {
	runtime.LockOSThread()
	before, err := own()
	if err != nil {
		panic(err)
	}
	defer func() {
		if err := unix.Setns(before.fd, unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("leaving a network namespace: %v", err)) // this thread must run nothing else
		}
		before.close()
		runtime.UnlockOSThread()
	}()
	if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
		panic(fmt.Sprintf("entering a network namespace: %v", err))
	}
	f()
}

// Run runs a command in the namespace. Its input is in the last argument if that
// has lines.
func (n *Namespace) Run(name string, args ...string) error {
	input := ""
	if last := len(args) - 1; strings.Contains(args[last], "\n") {
		input, args = args[last], args[:last]
	}
	var out []byte
	var err error
	n.Do(func() {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(input)
		out, err = cmd.CombinedOutput()
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// IP runs commands of ip(8) in the namespace.
func (n *Namespace) IP(commands ...string) error {
	for _, command := range commands {
		if err := n.Run("ip", strings.Fields(command)...); err != nil {
			return err
		}
	}
	return nil
}
