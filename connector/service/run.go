package service

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/kardianos/service"
)

// Managed reports whether Windows started this process as a service. Other service
// managers start ordinary processes.
func Managed() bool { return runtime.GOOS == "windows" && !service.Interactive() }

// NameFlag is the flag of the run command that holds the service's name, if it is not the
// default.
const NameFlag = "--service-name"

// NameIn returns the name of the service started with these arguments.
func NameIn(arguments []string) string {
	if i := slices.Index(arguments, NameFlag); i >= 0 && i+1 < len(arguments) {
		return arguments[i+1]
	}
	return DefaultName
}

// Run runs f as the named service until the manager stops it, and returns the exit code.
func Run(name string, f func(ctx context.Context) int) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p := &program{f: f, ctx: ctx, cancel: cancel, done: make(chan struct{})}
	s, err := service.New(p, &service.Config{Name: name})
	if err == nil {
		err = s.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error: running as a service:", err)
		return 1
	}
	return p.code
}

// program runs f for the library.
type program struct {
	f      func(ctx context.Context) int
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	code   int
}

// Start implements [service.Interface].
func (p *program) Start(service.Service) error {
	go func() {
		p.code = p.f(p.ctx)
		close(p.done)
		if p.ctx.Err() == nil {
			os.Exit(max(p.code, 1)) // the manager restarts it
		}
	}()
	return nil
}

// Stop implements [service.Interface].
func (p *program) Stop(service.Service) error {
	p.cancel()
	<-p.done
	return nil
}

// maxLog is the size at which a log file is rotated at the start, in bytes.
const maxLog = 10 << 20

// OpenLog opens the log file of a Windows service.
func OpenLog(name string) (*os.File, error) {
	path := windowsLog(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		_ = os.Rename(path, path+".old") // if it fails, the log keeps growing
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// Folder returns the folder of a Windows service, for its socket.
func Folder(name string) string { return filepath.Join(os.Getenv("ProgramData"), "postern", name) }

func windowsLog(name string) string { return Folder(name) + ".log" }
