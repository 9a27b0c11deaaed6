package harness

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/tests/proc"
)

// Pair starts `connector pair` with a pairing code, for a device with a name of
// its own. It does not wait.
func (g *Gateway) Pair(t testing.TB, name, code, upstream string, args ...string) *proc.Process {
	t.Helper()
	args = append([]string{"pair", g.URL, code, "--upstream", upstream, "--config", g.PairedConfig(name)}, args...)
	cmd := exec.Command(binary(t, "connector"), args...)
	cmd.Dir = g.Dir
	cmd.Env = g.environment()
	p := proc.Start(t, g.Dir, "pair-"+name, cmd)
	g.watch(p)
	return p
}

// PairedConfig is where the device of that name keeps its configuration.
func (g *Gateway) PairedConfig(name string) string {
	return filepath.Join(g.Dir, "paired-"+name+".json")
}
