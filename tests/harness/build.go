// Package harness is package rig for tests: errors fail the test, and started processes end with it. Each
// gateway has its own folder, ports and database. When a test ends, all logs are searched for keys, tokens and
// prompts.
package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/tests/rig"
)

// Main builds the binaries if sources have changed since, and runs the tests.
// A package's TestMain calls it.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main for a package that has something to do after its tests.
func Run(m *testing.M) (code int) {
	if err := Build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Build builds the binaries if sources have changed since. Main calls it. A package whose tests run without
// the machine's network calls it before.
func Build() error {
	root, err := rig.Root()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, ".cache"), 0o755); err != nil {
		return fmt.Errorf("creating the cache folder: %w", err)
	}
	unlock, err := rig.Lock(filepath.Join(root, ".cache", "build.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if out, err := exec.Command(filepath.Join(root, "xcaddy.sh"), "build-changed").CombinedOutput(); err != nil {
		return fmt.Errorf("building the binaries: %w\n%s", err, out)
	}
	return nil
}
