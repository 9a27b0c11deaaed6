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

// isolated is the environment's variable of the process with its own network.
const isolated = "POSTERN_CLUSTER_ISOLATED"

var (
	network *lab.Switch // nil with POSTERN_SKIP_NETWORK=1
	here    netip.Addr  // of this process at the switch
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
	case os.Getenv("POSTERN_SKIP_NETWORK") != "1":
		harness.Isolate(func(string) (string, error) {
			_, err := rig.EtcdProgram()
			return isolated + "=1", err
		})
	}
	code := m.Run()
	browser.Stop()
	os.Exit(code)
}
