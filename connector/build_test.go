package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

const (
	maxBinary = 13 << 20 // bytes, stripped
	maxRSS    = 20 << 20 // bytes, with a tunnel that is idle
	maxWorked = 28 << 20 // bytes, after many requests one after the other
)

// buildFor builds the connector like a release, and returns the file.
func buildFor(t *testing.T, system, machine string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "connector")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+machine)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building for %s/%s: %v\n%s", system, machine, err, out)
	}
	return path
}

// TestBuilds builds for all machines. Unchanged packages come from Go's cache; without it the
// test takes minutes.
func TestBuilds(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds six programs")
	}
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, machine := range []string{"amd64", "arm64"} {
			t.Run(system+"_"+machine, func(t *testing.T) {
				info, err := os.Stat(buildFor(t, system, machine))
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("%.1f MB", float64(info.Size())/(1<<20))
				if info.Size() > maxBinary {
					t.Errorf("it has %d bytes, more than %d", info.Size(), maxBinary)
				}
			})
		}
	}
}

// TestProcess runs the program with a tunnel in a process of its own. It checks its memory and
// its reactions to signals.
func TestProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory is read from /proc")
	}
	g := newPairGateway(t)
	g.stays.Store(true)
	h := newHome(t)
	config := fmt.Sprintf(`{"tunnel_token": %q, "upstream": %q}`, g.token(), g.URL)
	if err := os.WriteFile(h.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log output
	process := exec.Command(buildFor(t, runtime.GOOS, runtime.GOARCH), "run", "--config", h.config)
	process.Env = []string{"HOME=" + h.env["HOME"], "XDG_RUNTIME_DIR=" + h.env["XDG_RUNTIME_DIR"]}
	process.Stderr = &log
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer process.Process.Kill()
	var tunnel *quic.Conn
	select {
	case tunnel = <-g.tunnels:
	case <-time.After(patience):
		t.Fatalf("no tunnel after %v: %s", patience, &log)
	}
	if code, _, stderr := h.run(t.Context(), "wait", "--timeout", patience.String(), "--config",
		h.config); code != exitOK {
		t.Errorf("wait ended with code %d: %s", code, stderr)
	}
	pid := process.Process.Pid
	rss := residentBytes(t, pid)
	t.Logf("RSS %.1f MB with a tunnel", float64(rss)/(1<<20))
	if rss > maxRSS {
		t.Errorf("it has %d bytes of memory, more than %d", rss, maxRSS)
	}
	if testing.Short() {
		t.Log("-short: it gets no requests")
	} else {
		working(t, tunnel)
		rss := residentBytes(t, pid)
		t.Logf("RSS %.1f MB after the last request", float64(rss)/(1<<20))
		if rss > maxWorked {
			t.Errorf("after the last request, it has %d bytes of memory, more than %d", rss, maxWorked)
		}
	}
	if err := process.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	wait.Until(h.t, "the reload", func() bool { return strings.Contains(log.String(), "configuration reloaded") })
	// The gateway does not take part in the drain, so the drain would take 30 s.
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	wait.Until(h.t, "the drain", func() bool { return strings.Contains(log.String(), "another signal stops at once") })
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = process.Wait()
	if status := process.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() ||
		status.Signal() != syscall.SIGTERM {
		t.Errorf("after the second signal it ended with %v", process.ProcessState)
	}
	if strings.Contains(log.String(), "s3cret") {
		t.Error("the log contains the secret")
	}
}

// working sends enough requests for the connector to collect garbage many times.
func working(t *testing.T, tunnel *quic.Conn) {
	t.Helper()
	prompt := strings.Repeat("a", 64<<10)
	for range 2000 {
		stream, err := tunnel.OpenStreamSync(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://default/v1/chat/completions",
			strings.NewReader(prompt))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := link.RoundTrip(t.Context(), stream, r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%v, status %d", err, answer.StatusCode)
		}
		answer.Body.Close()
	}
}

// residentBytes returns a process's memory as the system counts it.
func residentBytes(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	t.Fatal("the system does not report it")
	return 0
}
