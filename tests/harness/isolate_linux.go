package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"github.com/postern-dev/postern/tests/rig/lab"
)

// Isolate runs the tests of a package in another process with its own network, and exits. All builds are done
// here, where Go's module proxy is reachable: prepare may build more into a folder. It returns a variable by
// which TestMain recognizes the other process.
func Isolate(prepare func(folder string) (variable string, err error)) {
	if os.Getenv("POSTERN_SKIP_NETWORK") == "1" {
		fmt.Println("POSTERN_SKIP_NETWORK=1: no tests of bad networks")
		os.Exit(0)
	}
	err := isolate(prepare)
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

func isolate(prepare func(folder string) (string, error)) error {
	if err := lab.Missing(); err != nil {
		return fmt.Errorf("the tests of bad networks need %w; set POSTERN_SKIP_NETWORK=1 to leave them out", err)
	}
	if err := Build(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	folder, err := os.MkdirTemp("", "isolated")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer os.RemoveAll(folder)
	variable, err := prepare(folder)
	if err != nil {
		return err
	}
	// The kernel kills the process when the thread ends that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Tests mostly wait for the network, so more of them run at once than there are processors. Flags of go test
	// follow, and override this.
	cmd := exec.Command(self, append([]string{"-test.parallel=6"}, os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), variable)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	lab.Isolate(cmd)
	return cmd.Run()
}
