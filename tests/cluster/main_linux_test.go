package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/postern-dev/postern/tests/browser"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/rig/lab"
)

const (
	// isolated is the environment variable of the process in its own network namespace.
	isolated = "POSTERN_CLUSTER_ISOLATED"
	// skip is the variable for a machine without network namespaces.
	skip = "POSTERN_SKIP_NETWORK"
)

var (
	network *lab.Switch // nil with POSTERN_SKIP_NETWORK=1
	here    netip.Addr  // address of this process at the switch
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(isolated) != "":
		s, address, err := lab.NewSwitch()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		network, here = s, netip.MustParseAddr(address)
		os.Unsetenv(isolated) // tests that start this program again use the same network
		os.Setenv(skip, "1")
	case os.Getenv(skip) != "1":
		harness.Isolate(func(string) (string, error) {
			_, err := rig.EtcdProgram()
			return isolated + "=1", err
		})
	}
	code := m.Run()
	browser.Stop()
	os.Exit(code)
}
