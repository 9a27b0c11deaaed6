package cli

import (
	"os"
	"os/exec"
	"path/filepath"
)

// ProgramName is how this program is started from a shell like the one that
// started it as arg0: by its plain name if the shell would find it, else as
// before, such as bin/caddy.
func ProgramName(arg0 string) string {
	base := filepath.Base(arg0)
	switch arg0 {
	case "":
		return "caddy"
	case base:
		return arg0
	}
	if found, err := exec.LookPath(base); err == nil && sameFile(found, arg0) {
		return base
	}
	return arg0
}

func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}
