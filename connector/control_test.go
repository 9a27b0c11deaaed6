package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/upstream"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// home is a machine on which a connector runs.
type home struct {
	t       *testing.T
	env     map[string]string
	config  string
	hangups chan os.Signal
}

func newHome(t *testing.T) *home {
	t.Helper()
	// The paths of sockets must be short, and those of tests are long.
	dir, err := os.MkdirTemp("", "home")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &home{
		t: t, config: filepath.Join(dir, "connector.json"), hangups: make(chan os.Signal, 1),
		env: map[string]string{"XDG_RUNTIME_DIR": filepath.Join(dir, "run"), "HOME": dir},
	}
	h.write("http://127.0.0.1:1")
	return h
}

func (h *home) write(upstream string) {
	h.t.Helper()
	config := fmt.Sprintf(`{"tunnel_token": %q, "upstream": %q}`, testToken.Encode(), upstream)
	if err := os.WriteFile(h.config, []byte(config), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// run executes a command line on the machine.
func (h *home) run(ctx context.Context, args ...string) (code int, stdout, stderr *output) {
	stdout, stderr = new(output), new(output)
	return run(ctx, args, h.system(stdout, stderr)), stdout, stderr
}

func (h *home) system(stdout, stderr *output) system {
	return system{
		stdout: stdout, stderr: stderr,
		getenv:  func(name string) string { return h.env[name] },
		signals: context.WithCancel,
		hangups: func() (<-chan os.Signal, func()) { return h.hangups, func() {} },
	}
}

// start runs a connector until the test ends, and waits until it answers at its socket.
func (h *home) start(args ...string) *output {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	stdout, stderr := new(output), new(output)
	var running sync.WaitGroup
	running.Go(func() {
		if code := run(ctx, append([]string{"run", "--config", h.config}, args...),
			h.system(stdout, stderr)); code != exitOK {
			h.t.Errorf("run ended with code %d: %s", code, stderr)
		}
	})
	h.t.Cleanup(func() {
		cancel()
		running.Wait()
		if strings.Contains(stderr.String(), testToken.Secret) {
			h.t.Error("the log contains the secret")
		}
	})
	wait.Until(h.t, "the control socket", func() bool {
		_, _, err := findConnector(h.t.Context(), h.system(stdout, stderr), selector{config: h.config})
		return err == nil
	})
	return stderr
}

func TestStatusCommand(t *testing.T) {
	h := newHome(t)
	code, _, stderr := h.run(t.Context(), "status", "--config", h.config)
	if code != exitRuntime || !strings.Contains(stderr.String(), "no connector is running") ||
		!strings.Contains(stderr.String(), "connector run") {
		t.Errorf("without a connector: code %d, %s", code, stderr)
	}
	h.start()
	code, stdout, stderr := h.run(t.Context(), "status", "--config", h.config)
	if code != exitRuntime || !strings.Contains(stdout.String(), "127.0.0.1:1") ||
		!strings.Contains(stdout.String(), h.config) ||
		!strings.HasPrefix(stderr.String(), "Error: the tunnel is not up: ") {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
	_, stdout, _ = h.run(t.Context(), "status", "--json", "--config", h.config)
	var got report
	if err := json.Unmarshal([]byte(stdout.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.PID != os.Getpid() || got.Config != h.config || got.Connector != testToken.Connector || got.State == "" ||
		len(got.Upstreams) != 1 || got.Version == "" {
		t.Errorf("report %+v", got)
	}
	if strings.Contains(stdout.String(), testToken.Secret) || strings.Contains(stdout.String(), "ptt_") {
		t.Error("the report contains the token")
	}
}

func TestSocketIsPrivate(t *testing.T) {
	h := newHome(t)
	h.start()
	path, err := socketPath(func(name string) string { return h.env[name] }, h.config, "")
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v", at, info.Mode(), err)
		}
	}
}

// A newer process takes the tunnel of an older one at once, and its socket when the older one
// has ended.
func TestTwoConnectorsWithOneConfiguration(t *testing.T) {
	h := newHome(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	old := new(output)
	go func() { ended <- run(ctx, []string{"run", "--config", h.config}, h.system(new(output), old)) }()
	answers := func() bool {
		_, _, err := findConnector(t.Context(), h.system(new(output), new(output)), selector{config: h.config})
		return err == nil
	}
	wait.Until(h.t, "the older process", answers)
	next := new(output)
	nextCtx, stopNext := context.WithCancel(t.Context())
	nextEnded := make(chan int, 1)
	go func() { nextEnded <- run(nextCtx, []string{"run", "--config", h.config}, h.system(new(output), next)) }()
	wait.Until(h.t, "the warning", func() bool { return strings.Contains(next.String(), "this one takes its place") })
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("the older process: code %d, %s", code, old)
	}
	wait.Until(h.t, "the socket of the newer process", answers)
	stopNext()
	if code := <-nextEnded; code != exitOK {
		t.Errorf("the newer process: code %d, %s", code, next)
	}
}

func TestSocketThatWasLeft(t *testing.T) {
	h := newHome(t)
	path, err := socketPath(func(name string) string { return h.env[name] }, h.config, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	old.Close() // like a process that was killed
	h.start()
}

func TestSocketFlag(t *testing.T) {
	h := newHome(t)
	long := "/" + strings.Repeat("x", 200)
	code, _, stderr := h.run(t.Context(), "run", "--config", h.config, "--socket", long)
	if code != exitUsage || !strings.Contains(stderr.String(),
		"Error: --socket: the path of the control socket is longer than 103 bytes") {
		t.Errorf("a long one: code %d, %s", code, stderr)
	}
	if code, _, stderr := h.run(t.Context(), "run", "--config", h.config, "--socket", h.config); code != exitUsage ||
		!strings.Contains(stderr.String(), "is not a socket") {
		t.Errorf("a file: code %d, %s", code, stderr)
	}
	if code, _, stderr := h.run(t.Context(), "status", "--socket", "off"); code != exitUsage ||
		!strings.Contains(stderr.String(), "--socket: cannot be off here") {
		t.Errorf("none: code %d, %s", code, stderr)
	}
}

func TestWaitCommand(t *testing.T) {
	h := newHome(t)
	code, _, stderr := h.run(t.Context(), "wait", "--timeout", "300ms", "--config", h.config)
	if code != exitRuntime || !strings.Contains(stderr.String(),
		"the tunnel is still down after 300ms: no connector is running") {
		t.Errorf("code %d, %s", code, stderr)
	}
	h.start()
	code, _, stderr = h.run(t.Context(), "wait", "--timeout", "300ms", "--config", h.config)
	if code != exitRuntime || !strings.Contains(stderr.String(),
		"the tunnel is still down after 300ms: connecting to 127.0.0.1:1") {
		t.Errorf("code %d, %s", code, stderr)
	}
}

func TestReloadCommand(t *testing.T) {
	h := newHome(t)
	log := h.start()
	address := func() string {
		_, stdout, _ := h.run(t.Context(), "status", "--json", "--config", h.config)
		var got report
		if err := json.Unmarshal([]byte(stdout.String()), &got); err != nil {
			t.Fatal(err)
		}
		return got.Upstreams[0].Address
	}
	h.write("http://127.0.0.1:2")
	code, stdout, stderr := h.run(t.Context(), "reload", "--config", h.config)
	if want := fmt.Sprintf("Process %d reloaded %s\n", os.Getpid(), h.config); code != exitOK ||
		stdout.String() != want || address() != "127.0.0.1:2" {
		t.Errorf("code %d, %s%s, now %s", code, stdout, stderr, address())
	}
	h.write("127.0.0.1:3")
	code, _, stderr = h.run(t.Context(), "reload", "--config", h.config)
	if want := "Error: not reloaded; the old configuration stays: " + h.config +
		`: upstream: "127.0.0.1:3" must begin with http://`; code != exitUsage ||
		!strings.HasPrefix(stderr.String(), want) || address() != "127.0.0.1:2" {
		t.Errorf("code %d, %s, now %s", code, stderr, address())
	}
	h.hangups <- os.Interrupt
	wait.Until(h.t, "the complaint in the log",
		func() bool { return strings.Contains(log.String(), "failed to reload; the old configuration stays") })
	h.write("http://127.0.0.1:4")
	h.hangups <- os.Interrupt
	wait.Until(h.t, "the reload", func() bool { return address() == "127.0.0.1:4" })
}

func TestReloadOfWhatCannotChange(t *testing.T) {
	r := &runner{notify: &notifier{}}
	if err := r.reload(); err == nil || !strings.Contains(err.Error(), "configured by its environment") {
		t.Errorf("error %v", err)
	}
	r.options.config = "/run/credentials/x.service/connector.json"
	r.sys.getenv = func(string) string { return "/run/credentials/x.service" }
	if err := r.reload(); err == nil || !strings.Contains(err.Error(), "sudo systemctl restart x.service") {
		t.Errorf("error %v", err)
	}
}

// TestNotify acts as systemd.
func TestNotify(t *testing.T) {
	h := newHome(t)
	path := filepath.Join(filepath.Dir(h.config), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	h.env["NOTIFY_SOCKET"], h.env["WATCHDOG_USEC"], h.env["WATCHDOG_PID"] = path, "40000", fmt.Sprint(os.Getpid())
	received := make(chan string, 1000)
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := socket.Read(buffer)
			if err != nil {
				return
			}
			received <- string(buffer[:n])
		}
	}()
	expect := func(prefix string) {
		t.Helper()
		for limit := time.After(patience); ; {
			select {
			case text := <-received:
				if strings.HasPrefix(text, prefix) {
					return
				}
			case <-limit:
				t.Fatalf("waited %v for %s", patience, prefix)
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() {
		code, _, _ := h.run(ctx, "run", "--config", h.config)
		ended <- code
	}()
	expect("READY=1")
	expect("STATUS=connecting to 127.0.0.1:1")
	expect("WATCHDOG=1")
	expect("WATCHDOG=1")
	stop()
	expect("STOPPING=1")
	if code := <-ended; code != exitOK {
		t.Errorf("code %d", code)
	}
}

func TestNotifyOfAnotherProcess(t *testing.T) {
	env := map[string]string{"NOTIFY_SOCKET": "@name", "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}
	if n := newNotifier(func(name string) string { return env[name] }, 2); n.every != 0 || n.socket != "\x00name" {
		t.Errorf("got %+v", n)
	}
	(&notifier{}).send("READY=1") // does nothing
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 1234 * time.Microsecond: "1.23ms", 123456 * time.Microsecond: "123ms",
		12345 * time.Millisecond: "12.3s",
		61 * time.Second:         "1m01s", 3*time.Hour + 2*time.Minute: "3h02m", 50 * time.Hour: "2d02h",
	} {
		if got := short(d); got != want {
			t.Errorf("%v is %q, not %q", d, got, want)
		}
	}
}

func TestReportText(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
	s := agent.Status{
		State: agent.StateOnline, Since: now.Add(-90 * time.Second), Server: "gw.example.com:7443",
		Tunnel: &agent.TunnelStatus{Transport: "quic", RTT: 12300 * time.Microsecond, GatewayVersion: "v1"},
		Upstreams: []agent.UpstreamStatus{{
			Name: "ollama", Address: "localhost:11434", State: upstream.StateReachable,
			Models: []string{"a", "b"},
		}, {Name: "vllm", Address: "10.0.0.5:8000", State: upstream.StateDown}},
		Running: 1, Served: 20, Failed: 2,
		Recent: []upstream.Request{
			{
				At: now, Method: "POST", Path: "/v1/chat/completions", Upstream: "ollama", Status: 200, Result: "2xx",
				Duration: 3200 * time.Millisecond,
			},
			{At: now, Method: "GET", Path: "/v1/models", Upstream: "vllm", Result: "upstream_down", Duration: time.Millisecond},
		},
	}
	var b strings.Builder
	writeReport(&b, report{PID: 7, Version: "v2", Config: "/etc/c.json", Started: now.Add(-time.Hour), Status: s}, now)
	want := `state      online for 1m30s
gateway    gw.example.com:7443  version v1
tunnel     quic, round trip 12ms
upstream   ollama  localhost:11434  reachable, 2 models
           vllm  10.0.0.5:8000  down
requests   1 running, 20 served, 2 failed
           12:00:00  200     3.2s  POST /v1/chat/completions  ollama
           12:00:00  upstream_down     1ms  GET /v1/models  vllm
process    7, version v2, running for 1h00m, configured by /etc/c.json
`
	if b.String() != want {
		t.Errorf("got\n%s", &b)
	}
	s = agent.Status{
		State: agent.StateWaiting, Server: "gw:1",
		Problem: &agent.Problem{Reason: "no answer over UDP", Fix: "check that", RetryAt: now.Add(5 * time.Second)},
	}
	b.Reset()
	writeStatus(&b, s, now)
	if want := "state      not connected, next try in 5s\ngateway    gw:1\nreason     no answer over UDP\nfix        " +
		"check that\nrequests   0 running, 0 served\n"; b.String() != want {
		t.Errorf("got\n%s", &b)
	}
}

func TestCompletions(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, stdout, _ := execute(t, "", nil, "completion", shell); code != exitOK ||
			!strings.Contains(stdout, "connector") {
			t.Errorf("%s: code %d, %d bytes", shell, code, len(stdout))
		}
	}
	if _, stdout, _ := execute(t, "", nil, "__complete", "st"); !strings.HasPrefix(stdout, "status\t") {
		t.Errorf("st is completed by %q", stdout)
	}
}
