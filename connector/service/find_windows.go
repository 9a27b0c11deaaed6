package service

import (
	"fmt"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc/mgr"
)

// Find returns the services whose command is `PROGRAM run`, with their programs and
// configurations. It asks for the rights that every user has.
func Find() (plans []Plan, err error) {
	handle, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CONNECT|windows.SC_MANAGER_ENUMERATE_SERVICE)
	if err != nil {
		return nil, fmt.Errorf("asking the service manager: %w", err)
	}
	manager := &mgr.Mgr{Handle: handle}
	defer func() { _ = manager.Disconnect() }()
	names, err := manager.ListServices()
	if err != nil {
		return nil, fmt.Errorf("listing the services: %w", err)
	}
	for _, name := range names {
		if CheckName(name) != nil {
			continue
		}
		command := commandOf(manager, name)
		if len(command) > 1 && command[1] == "run" {
			plans = append(plans, Plan{Name: name, Executable: command[0], Config: configIn(command)})
		}
	}
	return plans, nil
}

// commandOf returns the command of a service; nil if it is not accessible.
func commandOf(manager *mgr.Mgr, name string) []string {
	pointer, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return nil
	}
	handle, err := windows.OpenService(manager.Handle, pointer, windows.SERVICE_QUERY_CONFIG)
	if err != nil {
		return nil
	}
	s := &mgr.Service{Name: name, Handle: handle}
	defer s.Close()
	config, err := s.Config()
	if err != nil {
		return nil
	}
	command, err := windows.DecomposeCommandLine(config.BinaryPathName)
	if err != nil {
		return nil
	}
	return command
}
