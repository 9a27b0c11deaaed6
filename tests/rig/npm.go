package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// NPM installs the packages that a folder's lock file names, unless they are there.
func NPM(dir string) error {
	lock, err := os.Stat(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return fmt.Errorf("finding the lock file: %w", err)
	}
	// npm writes this file at the end of an installation.
	done, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json"))
	if err == nil && !done.ModTime().Before(lock.ModTime()) {
		return nil
	}
	// npm ci refuses a lock file without the packages of other systems, which a registry may not have.
	cmd := exec.Command("npm", "install", "--no-save", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("installing packages in %s: %w\n%s\n(install Node.js with npm, or set POSTERN_SKIP_NODE=1)",
			dir, err, out)
	}
	return nil
}
