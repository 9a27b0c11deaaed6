//go:build linux

package network

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// An error that only a user can fix is logged with a remedy. The process ends if it can never connect again.
// Otherwise it retries, but not twice a second.
func TestFatal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, log string
		code      int // exit code; 0: the process continues
		change    func(t *testing.T, r *rig)
	}{
		{
			name: "removed while online",
			log: `"level":"ERROR","msg":"connector stopped","reason":"the gateway closed the tunnel: removed","fix":"the ` +
				`connector was removed on the gateway; create a new one on the gateway's machine with ` +
				"`postern gateway connector create`" + ` and put its token into tunnel_token, or pair again"}`,
			code:   78,
			change: func(t *testing.T, r *rig) { r.gateway.Command(t, nil, "connector", "remove", "box") },
		},
		{
			name: "removed while offline",
			log: `"level":"ERROR","msg":"connector stopped","reason":"the gateway refused the connector: invalid tunnel ` +
				`token: the connector was removed or paired again on another machine, or the token belongs to another gateway ` +
				`(bad_credentials)","fix":"get a new token on the gateway's machine with ` +
				"`postern gateway connector rotate NAME`, or `create`" + ` if the connector was removed, and put it into ` +
				`tunnel_token; or pair again"}`,
			code: 78,
			change: func(t *testing.T, r *rig) {
				r.box.Process.Kill()
				r.gateway.Command(t, nil, "connector", "remove", "box")
				r.launch(t, r.box)
			},
		},
		{
			name: "another identity at the gateway's address",
			log: `"level":"ERROR","msg":"cannot connect","reason":"dialing ` + "~" +
				`: the gateway's identity does not match the pin in the tunnel token","retry_in":"~","fix":"check ` + "`server`" +
				`; if the gateway has a new identity, pair again, or get a new token on the gateway's machine with ` +
				"`postern gateway connector rotate NAME`, or `create`" + ` if the gateway lost its storage"}`,
			change: func(t *testing.T, r *rig) {
				r.gateway.Process.Kill()
				if err := os.Remove(filepath.Join(r.gateway.Dir, "gateway.db")); err != nil {
					t.Fatal(err)
				}
				r.gateway.Restart(t)
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, harness.Options{})
			c.change(t, r)
			logged := r.expectError(t, c.log)
			if c.code != 0 {
				if code := r.box.Process.WaitExit(t, patience); code != c.code {
					t.Errorf("exit code %d, want %d", code, c.code)
				}
				return
			}
			_, after, _ := strings.Cut(logged, `"retry_in":"`)
			pause, _, _ := strings.Cut(after, `"`)
			if d, err := time.ParseDuration(pause); err != nil || d < 10*time.Second {
				t.Errorf("it retries after %v, %v", d, err)
			}
			if !r.box.Process.Running() {
				t.Error("the connector has ended, although it was online before")
			}
		})
	}
}

// expectError waits for an error in the connector's log, checks the last one, and returns it.
func (r *rig) expectError(t *testing.T, pattern string) (logged string) {
	t.Helper()
	r.box.Process.WaitLog(t, `"level":"ERROR"`, patience)
	for line := range strings.Lines(r.box.Process.Log()) {
		if strings.Contains(line, `"level":"ERROR"`) {
			logged = line
		}
	}
	if !like(logged, pattern) {
		t.Errorf("the log says\n%s\nwant\n%s", logged, pattern)
	}
	return logged
}

// like reports whether a line contains the parts of a pattern in order. The pattern separates them by ~.
func like(line, pattern string) bool {
	for piece := range strings.SplitSeq(pattern, "~") {
		_, after, found := strings.Cut(line, piece)
		if !found {
			return false
		}
		line = after
	}
	return true
}

// Two processes have the token of one connector. The newer one serves, the older one logs the reason, and they
// do not replace each other all the time.
func TestTwins(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "echo", upstream.Echo)
	older := r.box.Process
	newer := r.launch(t, r.box)
	older.WaitLog(t, "connected", patience)
	const fix = `"fix":"another connector runs with the same tunnel token; stop one of them, or give it a separate token"`
	older.WaitLog(t, fix, patience)
	r.waitAnswer(t, "echo", patience)
	if strings.Contains(newer.Log(), "replaced") {
		t.Error("the newer one was replaced at once")
	}
	if testing.Short() {
		return // TestAgentEndings of connector/agent covers the pauses
	}
	before, start := r.online(r.box), time.Now()
	for range 15 {
		time.Sleep(2 * time.Second)
		r.waitAnswer(t, "echo", patience)
	}
	// Each waits 15 to 30 s before it reconnects, if it does.
	n := r.online(r.box) - before
	if took := time.Since(start); n > 1+int(took/(15*time.Second)) {
		t.Errorf("they replaced each other %d times in %v", n, took)
	}
	older.Kill()
	newer.Kill()
}
