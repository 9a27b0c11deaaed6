//go:build unix

package agent

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/rig/wait"
)

// freeze stops this whole process for some seconds.
func freeze(t *testing.T, seconds string) {
	t.Helper()
	if out, err := exec.Command("sh", "-c",
		"kill -STOP $PPID; sleep "+seconds+"; kill -CONT $PPID").CombinedOutput(); err != nil {
		t.Fatalf("freezing: %v: %s", err, out)
	}
}

// TestFrozenBeforeTheFirstPong: when the process wakes, its timers have expired, but it cannot
// have read what arrived meanwhile.
func TestFrozenBeforeTheFirstPong(t *testing.T) {
	g := startGateway(t)
	g.set(func() { g.silent = true })
	a := startAgent(t, g, "http://127.0.0.1:1", func(a *Agent) { a.pongTimeout = pongTimeout })
	s := g.session()
	wait.Until(t, "the first ping", func() bool { return s.pings.Load() > 0 })
	g.set(func() { g.silent = false })
	freeze(t, "4")
	before := s.pings.Load()
	wait.Until(t, "the tunnel to go on", func() bool { return s.pings.Load() >= before+3 })
	if log := a.log.String(); s.conn.Context().Err() != nil || strings.Contains(log, "disconnected") {
		t.Errorf("the tunnel has ended; log %s", log)
	}
}
