//go:build linux

package cluster

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig"
)

// isolated is the environment's variable of the process with its own network.
const isolated = "POSTERN_CLUSTER_ISOLATED"

func TestMain(m *testing.M) {
	if os.Getenv(isolated) != "" {
		harness.Main(m)
	}
	if flag.Parse(); testing.Short() {
		fmt.Println("-short: no tests of a cluster with lines to break")
		return
	}
	harness.Isolate(func(string) (string, error) {
		_, err := rig.EtcdProgram()
		return isolated + "=1", err
	})
}
