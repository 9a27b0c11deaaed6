package service

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/kardianos/service"
)

// State is the state of a service.
type State string

// The states of a service.
const (
	NotInstalled State = "not installed"
	Stopped      State = "stopped"
	Running      State = "running"
)

// Manager manages one service with the system's service manager.
type Manager interface {
	Platform() string
	Install() error
	Uninstall() error
	Start() error
	Stop() error
	Restart() error
	State() (State, error)
}

// ErrNoManager means that the machine has no supported service manager.
var ErrNoManager = errors.New("this machine has no supported service manager (systemd, launchd, Windows, OpenRC, …); " +
	"in a container, use the container's restart policy")

// New returns the manager of a service.
func New(p Plan) (Manager, error) {
	s, err := service.New(new(program), p.config())
	if errors.Is(err, service.ErrNoServiceSystemDetected) {
		return nil, ErrNoManager
	}
	if err != nil {
		return nil, fmt.Errorf("asking the service manager: %w", err)
	}
	if first, _ := os.ReadFile("/proc/1/comm"); isAssumed(s.Platform(), string(first)) {
		return nil, ErrNoManager
	}
	return manager{s}, nil
}

// isAssumed reports whether the library only assumes a service manager. On Linux it falls back
// to System V's init, even in a container, whose first process is not init.
func isAssumed(platform, firstProcess string) bool {
	return platform == "unix-systemv" && strings.TrimSpace(firstProcess) != "init"
}

// config returns the plan for the library.
func (p Plan) config() *service.Config {
	return &service.Config{
		Name: p.Name, DisplayName: p.Title(), Description: description,
		Executable: p.Executable, Arguments: p.Arguments(),
		Option: service.KeyValue{
			"UserService":    p.User,
			"SystemdScript":  p.Unit(),
			"LaunchdConfig":  p.PropertyList(),
			"OnFailure":      "restart", // Windows
			"OnFailureDelay": "5s",
		},
	}
}

// manager wraps the library's service, with the states of this package.
type manager struct{ service.Service }

// State implements [Manager].
func (m manager) State() (State, error) {
	status, err := m.Status()
	switch {
	case errors.Is(err, service.ErrNotInstalled):
		return NotInstalled, nil
	case err != nil && err.Error() == "service in failed state":
		return Stopped, nil
	case err != nil:
		return "", fmt.Errorf("asking the service manager: %w", err)
	case status == service.StatusRunning:
		return Running, nil
	default:
		return Stopped, nil
	}
}
