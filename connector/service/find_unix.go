//go:build unix

package service

import (
	"os"
	"runtime"
)

// Find returns the services of systemd and launchd whose command is `PROGRAM run`, with their
// programs and configurations: those of the system, and those of users whose files can be read.
// The paths of the programs have no symbolic links.
func Find() ([]Plan, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/" // a daemon may have no home, and has no services of its own
	}
	return findIn(folders(runtime.GOOS, "/", home)), nil
}
