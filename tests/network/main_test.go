//go:build linux

package network

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig/lab"
)

// crowdProgram is the environment's variable with the path of the program crowd.
// It is there for the tests in their own namespace; without it, this program is
// what `go test` has started.
const crowdProgram = "POSTERN_NETWORK_CROWD"

func TestMain(m *testing.M) {
	if os.Getenv(crowdProgram) != "" {
		harness.Main(m)
	}
	if os.Getenv("POSTERN_SKIP_NETWORK") == "1" {
		fmt.Println("POSTERN_SKIP_NETWORK=1: no tests of bad networks")
		return
	}
	exit(startInNamespace())
}

func exit(err error) {
	var ended *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &ended) && ended.ExitCode() > 0:
		os.Exit(ended.ExitCode())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// startInNamespace runs the tests in another process, whose network is its own.
// What has to be built is built here, where Go's module proxy can be reached.
func startInNamespace() error {
	if err := lab.Missing(); err != nil {
		return fmt.Errorf("the tests of bad networks need %w; set POSTERN_SKIP_NETWORK=1 to leave them out", err)
	}
	if err := harness.Build(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	folder, err := os.MkdirTemp("", "crowd")
	if err != nil {
		return fmt.Errorf("making a folder for the crowd: %w", err)
	}
	defer os.RemoveAll(folder)
	crowd := filepath.Join(folder, "crowd")
	if out, err := exec.Command("go", "build", "-o", crowd, "./crowd").CombinedOutput(); err != nil {
		return fmt.Errorf("building the crowd: %w\n%s", err, out)
	}
	// The kernel kills the process when the thread ends that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Tests mostly wait for the network: more of them run at once than there are
	// processors. What go test was told comes later, and wins.
	cmd := exec.Command(self, append([]string{"-test.parallel=6"}, os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), crowdProgram+"="+crowd)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	lab.Isolate(cmd)
	return cmd.Run()
}
