//go:build linux

package network

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
)

// When the gateway restarts, many connectors reconnect at the same time. All of them get a tunnel, although
// the gateway limits parallel handshakes, and waiting handshakes of one address. The test is not parallel,
// because it would starve the others.
func TestCrowd(t *testing.T) {
	size := 3000
	if testing.Short() {
		size = 300
	}
	t.Run("many addresses", func(t *testing.T) {
		long(t)
		r := newGateway(t, harness.Options{})
		must(t, r.Spread())
		r.rush(t, size)
	})
	t.Run("one address", func(t *testing.T) { newGateway(t, harness.Options{}).rush(t, min(size, 1000)) })
}

// rush creates connectors, and restarts the gateway when all are online.
func (r *rig) rush(t *testing.T, size int) {
	t.Helper()
	start := time.Now()
	crowd := r.crowd(t, size)
	r.waitCrowd(t, size)
	t.Logf("%d connectors created and online in %v", size, time.Since(start).Round(100*time.Millisecond))
	start = time.Now()
	r.gateway.Process.Signal(t, syscall.SIGTERM) // notifies all connectors at the same time
	if code := r.gateway.Process.WaitExit(t, patience); code != 0 {
		t.Errorf("the gateway exited with code %d", code)
	}
	r.gateway.Restart(t)
	r.waitCrowd(t, size)
	t.Logf("all back in %v", time.Since(start).Round(100*time.Millisecond))
	crowd.Kill()
}

// crowd creates connectors and starts each one at once.
func (r *rig) crowd(t *testing.T, size int) *harness.Process {
	t.Helper()
	configs, in, err := os.Pipe()
	must(t, err)
	defer in.Close()
	var crowd *harness.Process
	r.Home.Do(func() {
		cmd := exec.Command(os.Getenv(crowdProgram))
		cmd.Stdin = configs
		crowd = r.gateway.StartProcess(t, "crowd", cmd)
	})
	configs.Close() // the process has its own copy
	r.gateway.Manage(t, http.MethodPatch, "/accounts/default", map[string]int{"max_connectors": size}, nil)
	for i := range size {
		c, err := r.gateway.CreateConnector(t.Context(), fmt.Sprintf("c%d", i))
		must(t, err)
		fmt.Fprintf(in, "{\"tunnel_token\":%q,\"upstream\":%q}\n", c.Token, r.up.URL)
	}
	return crowd
}

// waitCrowd waits until all connectors are online.
func (r *rig) waitCrowd(t *testing.T, size int) {
	t.Helper()
	harness.Poll(t, 8*time.Minute, "all connectors being online",
		func(ctx context.Context) error { return r.gateway.Admin.ExpectOnline(ctx, size) })
}
