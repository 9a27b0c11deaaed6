package service

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/kardianos/service"
)

// State is that of the service.
type State string

// The states of a service.
const (
	NotInstalled State = "not installed"
	Stopped      State = "stopped"
	Running      State = "running"
	Failed       State = "failed"
)

// Manager is the machine's manager of services.
type Manager interface {
	Platform() string
	Install() error
	Uninstall() error
	Start() error
	Stop() error
	State() (State, error)
}

// ErrNoManager: the machine has no known service manager.
var ErrNoManager = errors.New("this machine has no known service manager (systemd, launchd, Windows, OpenRC, …); in a container, use the container's restart policy")

// New returns the machine's manager for a service.
func New(p Plan) (Manager, error) {
	s, err := service.New(new(program), p.config())
	if errors.Is(err, service.ErrNoServiceSystemDetected) {
		return nil, ErrNoManager
	}
	if err != nil {
		return nil, fmt.Errorf("asking the service manager: %w", err)
	}
	if first, _ := os.ReadFile("/proc/1/comm"); pretended(s.Platform(), string(first)) {
		return nil, ErrNoManager
	}
	return manager{s}, nil
}

// pretended reports whether a service manager was only assumed: on Linux the
// library takes System V's init where it finds no other, also in a container,
// whose first process has another name.
func pretended(platform, firstProcess string) bool {
	return platform == "unix-systemv" && strings.TrimSpace(firstProcess) != "init"
}

// config is the plan as the library has it.
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

// manager is the library's, with the states of this package.
type manager struct{ service.Service }

// State implements [Manager].
func (m manager) State() (State, error) {
	status, err := m.Status()
	switch {
	case errors.Is(err, service.ErrNotInstalled):
		return NotInstalled, nil
	case err != nil && err.Error() == "service in failed state":
		return Failed, nil
	case err != nil:
		return "", fmt.Errorf("asking the service manager: %w", err)
	case status == service.StatusRunning:
		return Running, nil
	default:
		return Stopped, nil
	}
}

// HasSystemd reports whether the machine runs systemd.
func HasSystemd() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil
}
