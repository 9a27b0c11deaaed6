package tests

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

const (
	oldVersion, newVersion = "0.9.0", "0.9.1"
	// takeBack is the maximum time until a process has its tunnel back.
	takeBack = time.Minute + limit
)

// builds returns the folder with two versions of the connector, named after them.
var builds = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs("..")
	folder := filepath.Join(root, ".cache", "update")
	for _, version := range []string{oldVersion, newVersion} {
		build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(folder, version), "-ldflags",
			"-s -w -X github.com/postern-dev/postern/connector/version.number="+version, "./connector")
		build.Dir = root
		if out, buildErr := build.CombinedOutput(); buildErr != nil {
			err = errors.Join(err, fmt.Errorf("%w\n%s", buildErr, out))
		}
	}
	return folder, err
})

// A machine has a connector that runs as a service, with processes. Its gateway runs in
// this process.
type machine struct {
	*upgrade
	*services
	folder  string // home of the user, short enough for sockets
	program string
	archive atomic.Pointer[[]byte] // that the gateway hands out
	offer   atomic.Pointer[link.Offer]
	hold    chan struct{}
	env     []string
}

// newMachine starts a machine. If held is set, the download of the new version does not end
// before hold is closed.
func newMachine(t *testing.T, held bool) *machine {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the service manager is systemd's")
	}
	folder, err := builds()
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{hold: make(chan struct{})}
	if !held {
		close(m.hold)
	}
	if m.folder, err = os.MkdirTemp("", "machine"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range m.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		os.RemoveAll(m.folder)
	})
	m.program = filepath.Join(m.folder, "bin", "connector")
	m.write(t, m.program, read(t, filepath.Join(folder, oldVersion)), 0o755)
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		archive := *m.archive.Load()
		begin := len(archive) / 2
		_, _ = w.Write(archive[:begin])
		w.(http.Flusher).Flush()
		select {
		case <-m.hold:
			_, _ = w.Write(archive[begin:])
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(site.Close)
	m.handOut(archiveOf(t, read(t, filepath.Join(folder, newVersion))), site.URL)
	m.upgrade = &upgrade{
		release: make(chan struct{}),
		pair: &pair{Gateway: harness.StartInProcess(t, inprocess.Options{Offer: func(os string) *link.Offer {
			if os != "linux/"+runtime.GOARCH {
				t.Errorf("a connector runs on %s", os)
			}
			return m.offer.Load()
		}})},
	}
	_, key := m.Gateway.Key(t, "all", "*")
	m.Client = m.Gateway.Client(t, key)
	m.ups = [2]*upstream.Server{upstream.Start(t), upstream.Start(t)}
	m.cons[0] = m.NewConnector(t, "a", map[string]any{"upstream": m.ups[0].URL})
	for _, name := range []string{"m", "story"} {
		m.Manage(t, http.MethodPut, "/deployments/"+name, map[string]any{"connectors": []string{"a"}}, nil)
	}
	m.answer()
	m.install(t)
	return m
}

// handOut hands out an archive.
func (m *machine) handOut(archive []byte, url string) {
	sum := sha256.Sum256(archive)
	m.archive.Store(&archive)
	m.offer.Store(&link.Offer{
		Version: newVersion, URL: url, Size: int64(len(archive)),
		SHA256: hex.EncodeToString(sum[:]),
	})
}

// install installs the service, and starts it.
func (m *machine) install(t *testing.T) {
	t.Helper()
	m.services = &services{folder: filepath.Join(m.folder, "manager"), command: func() *exec.Cmd {
		cmd := exec.Command(m.program, "run", "--config", m.cons[0].Config, "--log-format", "json")
		cmd.Env = m.env
		return cmd
	}}
	tools := filepath.Join(m.folder, "tools")
	m.env = append(os.Environ(), "HOME="+m.folder, "XDG_RUNTIME_DIR="+m.folder, "PATH="+tools+":"+os.Getenv("PATH"),
		"TMPDIR="+filepath.Join(m.folder, "tmp"))
	m.write(t, filepath.Join(m.folder, ".config/systemd/user/postern-connector.service"),
		fmt.Appendf(nil, "[Service]\nExecStart=%q run --config %q\n", m.program, m.cons[0].Config), 0o644)
	script := fmt.Sprintf("#!/bin/sh\ncase $1 in\nis-active) echo active ;;\nrestart) : >%[1]s/restart; while [ -e "+
		"%[1]s/restart ]; do sleep 0.05; done ;;\nesac\n", m.services.folder)
	m.write(t, filepath.Join(tools, "systemctl"), []byte(script), 0o755)
	m.write(t, filepath.Join(tools, "rpm-ostree"), nil, 0o755) // by which the service library knows systemd
	m.write(t, filepath.Join(m.folder, "tmp", "x"), nil, 0o644)
	m.write(t, filepath.Join(m.services.folder, "x"), nil, 0o644)
	m.services.serve(t)
	m.awaitVersion(t, oldVersion)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (m *machine) write(t *testing.T, path string, content []byte, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, mode)); err != nil {
		t.Fatal(err)
	}
}

func archiveOf(t *testing.T, program []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewWriter(zipped)
	err = archive.WriteHeader(&tar.Header{
		Name: "connector", Size: int64(len(program)), Mode: 0o755,
		Typeflag: tar.TypeReg,
	})
	if err == nil {
		_, err = archive.Write(program)
	}
	if err = errors.Join(err, archive.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// awaitVersion waits until the connector is online with a version.
func (u *upgrade) awaitVersion(t *testing.T, want string) {
	t.Helper()
	harness.Poll(t, takeBack, "the connector having version "+want, func(context.Context) error {
		var list []struct{ State, Version string }
		u.Manage(t, http.MethodGet, "/connectors", nil, &list)
		if len(list) != 1 || list[0].State != "online" || list[0].Version != want {
			return fmt.Errorf("it is %v", list)
		}
		return nil
	})
}

// update starts `connector update`. It is killed when the test ends.
func (m *machine) update(t *testing.T, args ...string) *harness.Process {
	t.Helper()
	cmd := exec.Command(m.program, append([]string{"update"}, args...)...)
	cmd.Env = m.env
	return harness.StartProcess(t, m.folder, "update", cmd)
}

// processes returns the pids of the machine's processes, whose command lines have all of
// some words.
func (m *machine) processes(words ...string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is valid
	for _, file := range files {
		line, _ := os.ReadFile(file) // it may have ended
		has := strings.HasPrefix(string(line), m.folder)
		for _, word := range words {
			has = has && strings.Contains(string(line), word)
		}
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/", &pid); has && err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// awaitOne waits until the service's process is the only one.
func (m *machine) awaitOne(t *testing.T) {
	t.Helper()
	harness.Poll(t, takeBack, "one process being left", func(context.Context) error {
		if pids := m.processes(); !slices.Equal(pids, []int{m.pid()}) {
			return fmt.Errorf("the service is %d of %v", m.pid(), pids)
		}
		return nil
	})
}

// Services is a service manager with one service, which it restarts after failures.
type services struct {
	folder  string // contains the file restart while
	command func() *exec.Cmd
	starts  atomic.Int64
	current atomic.Pointer[exec.Cmd]
	stop    chan struct{}
	onAsked atomic.Pointer[func()] // called before a restart; may be nil
}

// asked returns the path of the file that asks for a restart.
func (s *services) asked() string { return filepath.Join(s.folder, "restart") }

func (s *services) pid() int { return s.current.Load().Process.Pid }

// serve starts the service, and runs it until the test ends.
func (s *services) serve(t *testing.T) {
	s.stop = make(chan struct{})
	var running sync.WaitGroup
	t.Cleanup(func() {
		close(s.stop)
		running.Wait()
	})
	log, err := os.Create(filepath.Join(s.folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("--- log of the service ---\n%s", b)
		}
		log.Close()
	})
	started := make(chan struct{})
	running.Go(func() {
		for again := true; again; {
			cmd := s.command()
			cmd.Stdout, cmd.Stderr = log, log
			if err := cmd.Start(); err != nil {
				t.Errorf("starting the service: %v", err)
				return
			}
			s.current.Store(cmd)
			_ = os.Remove(s.asked()) // its removal ends systemctl; it may not exist
			if s.starts.Add(1) == 1 {
				close(started)
			}
			again = s.life(t, cmd)
		}
	})
	<-started
}

// life waits until the service has ended, and reports whether it starts again.
func (s *services) life(t *testing.T, cmd *exec.Cmd) bool {
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // see ProcessState
		close(ended)
	}()
	for {
		select {
		case <-s.stop:
			_ = cmd.Process.Kill() // it may have ended
			<-ended
			return false
		case <-ended:
			t.Logf("the service ended by itself: %v", cmd.ProcessState)
			time.Sleep(100 * time.Millisecond)
			return !slices.Contains([]int{0, 2, 78}, cmd.ProcessState.ExitCode()) // as systemd's unit says
		case <-time.After(10 * time.Millisecond):
		}
		if _, err := os.Stat(s.asked()); err != nil {
			continue
		}
		if f := s.onAsked.Load(); f != nil {
			(*f)()
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the service ended with code %d", code)
		}
		return true
	}
}
