//go:build unix

package service

import (
	"os"
	"runtime"
)

// Find returns the services whose command is `PROGRAM run`, with their programs and
// configurations: the system's, and those of users whose files can be read. The paths of the
// programs have no symbolic links. Only services of systemd and launchd are found.
func Find() ([]Plan, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/" // as of a daemon, which has no services of its own
	}
	return findIn(places(runtime.GOOS, "/", home)), nil
}
