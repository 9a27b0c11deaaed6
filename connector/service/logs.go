package service

import (
	"os"
	"runtime"
	"strconv"
)

// LogCommand returns the command that shows the last lines of the service's log
// and, to follow it, those that come.
func (p Plan) LogCommand(lines int, follow bool) []string {
	return p.logCommand(runtime.GOOS, lines, follow)
}

func (p Plan) logCommand(system string, lines int, follow bool) []string {
	n := strconv.Itoa(lines)
	switch system {
	case "darwin":
		command := []string{"tail", "-n", n}
		if follow {
			command = append(command, "-F")
		}
		return append(command, p.launchdLog())
	case "windows":
		command := "Get-Content -Tail " + n + " -LiteralPath '" + windowsLog(p.Name) + "'"
		if follow {
			command += " -Wait"
		}
		return []string{"powershell", "-NoProfile", "-Command", command}
	default:
		unit := "--unit=" + p.Name
		if p.User {
			unit = "--user-unit=" + p.Name
		}
		command := []string{"journalctl", "--no-pager", "--output=cat", unit, "--lines=" + n}
		if follow {
			command = append(command, "--follow")
		}
		return command
	}
}

// HasSystemd reports whether the machine runs systemd, for advice.
func HasSystemd() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil
}
