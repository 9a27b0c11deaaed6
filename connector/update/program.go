package update

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Program is the file of the connector. Its path has no symbolic links.
type Program string

// sibling returns the path of a file in the same folder, which can be renamed to the program.
// Windows starts only files that end in .exe.
func (p Program) sibling(suffix string) string {
	if base, ok := strings.CutSuffix(string(p), ".exe"); ok {
		return base + suffix + ".exe"
	}
	return string(p) + suffix
}

func (p Program) fresh() string { return p.sibling(".new") }
func (p Program) old() string   { return p.sibling(".old") }

// Check reports whether this user may replace the program. Its errors name the fix.
func (p Program) Check() error {
	if fix := p.owner(exec.Command); fix != "" {
		return fmt.Errorf("%s was installed by a package manager; update it with: %s", p, fix)
	}
	if err := p.clean(); err != nil {
		return p.explain(err)
	}
	file, err := os.OpenFile(p.fresh(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return p.explain(err)
	}
	return errors.Join(file.Close(), os.Remove(p.fresh()))
}

// explain adds the fix to the error of a change in the program's folder.
func (p Program) explain(err error) error {
	switch {
	case !errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the folder of %s cannot be changed: %w; in a container, start a newer image", p, err)
	case runtime.GOOS == "windows":
		return fmt.Errorf("%s cannot be replaced: run this as administrator, and restart what still runs %s", p, p.old())
	default:
		return fmt.Errorf("%s cannot be replaced by this user; run: sudo connector update", p)
	}
}

// clean removes what an interrupted update has left.
func (p Program) clean() error {
	for _, path := range []string{p.fresh(), p.old()} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// managers lists package managers: the command that finds the package of a file, and the command
// that updates it.
var managers = []struct {
	query []string
	fix   string
}{
	{[]string{"dpkg", "-S"}, "sudo apt update && sudo apt install --only-upgrade postern-connector"},
	{[]string{"rpm", "-qf"}, "sudo dnf upgrade postern-connector"},
	{[]string{"apk", "info", "--who-owns"}, "sudo apk upgrade postern-connector"},
}

// owner returns the command that updates the program if a package manager has installed it.
func (p Program) owner(command func(string, ...string) *exec.Cmd) string {
	for _, m := range managers {
		if command(m.query[0], append(m.query[1:], string(p))...).Run() == nil {
			return m.fix
		}
	}
	if runtime.GOOS == "linux" && filepath.Dir(string(p)) == "/usr/bin" {
		return "the system's package manager"
	}
	return ""
}

// take replaces the program by the fresh one, and keeps it as the old one. A program exists at
// every moment, except on Windows, where a running program can only be renamed.
func (p Program) take() error {
	if runtime.GOOS == "windows" || os.Link(string(p), p.old()) != nil {
		if err := os.Rename(string(p), p.old()); err != nil {
			return p.explain(err)
		}
	}
	if err := os.Rename(p.fresh(), string(p)); err != nil {
		return errors.Join(p.explain(err), p.restore())
	}
	return nil
}

// restore puts the old program back.
func (p Program) restore() error {
	if runtime.GOOS == "windows" { // a running program cannot be replaced
		if err := os.Rename(string(p), p.fresh()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("putting the old program back: %w; rename %s to %s", err, p.old(), p)
		}
	}
	if err := os.Rename(p.old(), string(p)); err != nil {
		return fmt.Errorf("putting the old program back: %w; rename %s to %s", err, p.old(), p)
	}
	return nil
}
