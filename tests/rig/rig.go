// Package rig starts and ends the real programs, for tests and for measuring commands: gateways (bin/caddy),
// their connectors (bin/connector) and other programs that they need. It returns all failures as errors, so
// that commands and tests (package harness) can use it.
package rig

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Options configure a rig.
type Options struct {
	Dir string   // of all files; it must exist
	Bin string   // folder of caddy and connector; default: bin of the repository
	Env []string // of all processes, in addition to their home in Dir
	// Ended is called when a process has ended unasked. It may be nil.
	Ended func(error)
}

// A Rig is a folder with processes.
type Rig struct {
	Dir string

	o         Options
	mu        sync.Mutex
	processes []*Process
	logs      []*os.File // of what runs in this process
	secrets   []string   // what no log may hold
}

// New returns a rig without processes.
func New(o Options) (*Rig, error) {
	if o.Bin == "" {
		root, err := Root()
		if err != nil {
			return nil, err
		}
		o.Bin = filepath.Join(root, "bin")
	}
	var err error
	if o.Bin, err = filepath.Abs(o.Bin); err != nil {
		return nil, fmt.Errorf("finding the binaries: %w", err)
	}
	for _, name := range []string{"caddy", "connector"} {
		if _, err := os.Stat(filepath.Join(o.Bin, name)); err != nil {
			return nil, fmt.Errorf("finding the binaries: %w; run ./xcaddy.sh first", err)
		}
	}
	o.Env = slices.Concat([]string{
		"HOME=" + o.Dir, "XDG_DATA_HOME=" + filepath.Join(o.Dir, "data"),
		"XDG_CONFIG_HOME=" + filepath.Join(o.Dir, "config"), "NO_COLOR=1",
	}, o.Env)
	return &Rig{Dir: o.Dir, o: o}, nil
}

// Bin returns the folder of the binaries.
func (r *Rig) Bin() string { return r.o.Bin }

// Command returns a command of one of the binaries, with its home in the rig.
func (r *Rig) Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(r.o.Bin, name), args...)
	cmd.Dir = r.Dir
	cmd.Env = slices.Concat(os.Environ(), r.o.Env)
	return cmd
}

// Process returns a process with its home in the rig that has not been started.
func (r *Rig) Process(name string, command func() *exec.Cmd) (*Process, error) {
	p, err := NewProcess(r.Dir, name, command)
	if err != nil {
		return nil, err
	}
	p.Env, p.Ended = r.o.Env, r.o.Ended
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes = append(r.processes, p)
	return p, nil
}

// Processes returns all processes of the rig, in the order of their creation.
func (r *Rig) Processes() []*Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.processes)
}

// Log returns a new file for the log of something that runs in this process.
func (r *Rig) Log(name string) (*os.File, error) {
	f, err := os.CreateTemp(r.Dir, name+"-*.log")
	if err != nil {
		return nil, fmt.Errorf("creating a log: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, f)
	return f, nil
}

// Hide adds texts that no log may hold.
func (r *Rig) Hide(secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets = append(r.secrets, secrets...)
}

// Secrets returns the texts that no log may hold.
func (r *Rig) Secrets() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.secrets)
}

// Close kills all processes, the newest first. Each log that holds a secret is
// an error. The files stay.
func (r *Rig) Close() error {
	processes := r.Processes()
	for _, p := range slices.Backward(processes) {
		p.Kill()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	find := finder(r.secrets)
	var errs []error
	check := func(name, log string) {
		if secret, at := find(log); at >= 0 {
			errs = append(errs, fmt.Errorf("the log of %s holds secret number %d: …%s<secret>", name, secret,
				log[max(0, at-200):at]))
		}
	}
	for _, p := range processes {
		check(p.Name, p.read(0))
	}
	for _, f := range r.logs {
		b, err := os.ReadFile(f.Name())
		errs = append(errs, err, f.Close())
		check(filepath.Base(f.Name()), string(b))
	}
	return errors.Join(errs...)
}

// finder returns a function that returns the number of a secret in a text, and its position; -1 for none. It
// reads the text once for all secrets, and compares only where eight bytes match the end of a secret.
func finder(secrets []string) func(text string) (secret, at int) {
	const end = 8
	byEnd := map[uint64][]int{}
	tail := func(s string) uint64 { return binary.LittleEndian.Uint64([]byte(s[len(s)-end:])) }
	for i, s := range secrets {
		if len(s) >= end {
			byEnd[tail(s)] = append(byEnd[tail(s)], i)
		}
	}
	return func(text string) (int, int) {
		for i, s := range secrets {
			if len(s) >= end {
				continue
			}
			if at := strings.Index(text, s); at >= 0 {
				return i, at
			}
		}
		for to := end; to <= len(text); to++ {
			for _, i := range byEnd[tail(text[:to])] {
				if strings.HasSuffix(text[:to], secrets[i]) {
					return i, to - len(secrets[i])
				}
			}
		}
		return 0, -1
	}
}
