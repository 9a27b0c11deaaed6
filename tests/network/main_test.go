//go:build linux

package network

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// crowdProgram is the environment variable with the path of the program crowd. It is set for the test process
// in the namespace, but not for the one that `go test` starts.
const crowdProgram = "POSTERN_NETWORK_CROWD"

func TestMain(m *testing.M) {
	if os.Getenv(crowdProgram) != "" {
		harness.Main(m)
	}
	harness.Isolate(buildCrowd)
}

// buildCrowd builds the program crowd, and returns the variable with its path.
func buildCrowd(folder string) (string, error) {
	crowd := filepath.Join(folder, "crowd")
	if out, err := exec.Command("go", "build", "-o", crowd, "./crowd").CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the crowd: %w\n%s", err, out)
	}
	return crowdProgram + "=" + crowd, nil
}
