// Package harness runs the real binaries for end-to-end tests: a gateway
// (bin/caddy), its connectors (bin/connector) and its commands, each gateway
// with its own folder, ports and database. When a test ends it looks through
// everything that was logged for keys, tokens and prompts.
package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/tests/proc"
)

// Main builds the binaries if sources have changed since, and runs the tests.
// A package's TestMain calls it.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main for a package that has something to do after its tests.
func Run(m *testing.M) (code int) {
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func build() error {
	root, err := proc.Root()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, ".cache"), 0o755); err != nil {
		return fmt.Errorf("creating the cache folder: %w", err)
	}
	unlock, err := proc.Lock(filepath.Join(root, ".cache", "build.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if out, err := exec.Command(filepath.Join(root, "xcaddy.sh"), "build-changed").CombinedOutput(); err != nil {
		return fmt.Errorf("building the binaries: %w\n%s", err, out)
	}
	return nil
}

// binary returns the path of a built binary.
func binary(t testing.TB, name string) string {
	t.Helper()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "bin", name)
}
