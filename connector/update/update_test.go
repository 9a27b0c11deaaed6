//go:build unix

package update

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
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/service"
)

// Programs are scripts. The state of a process is in a file next to its socket.
const (
	// works is online at once, and ends when it is replaced. It fails with one configuration.
	works = `#!/bin/sh
case "$*" in *refused.json) echo Error: refused >&2; exit 78;; esac
while [ "$1" != --socket ]; do shift; done
trap 'exit 0' TERM
echo online > "$2.state"
while [ ! -e "$2.replaced" ]; do sleep 0.02; done
`
	crashes = "#!/bin/sh\necho a line >&2\necho Error: the illegal instruction >&2\nexit 7\n"
	hangs   = "#!/bin/sh\nexec sleep 60\n"
)

// machine has a program, a gateway that offers another one, and a service.
type machine struct {
	t        *testing.T
	folder   string
	update   *Update
	archive  []byte
	lines    []string
	restarts int
	up       func(restart int) bool // reports whether the service comes up
}

func newMachine(t *testing.T, program string) *machine {
	t.Helper()
	m := &machine{t: t, folder: t.TempDir(), up: func(int) bool { return true }}
	t.Setenv("TMPDIR", t.TempDir())
	path := filepath.Join(m.folder, "connector")
	if err := os.WriteFile(path, []byte("the old one"), 0o751); err != nil {
		t.Fatal(err)
	}
	m.archive = packed(t, map[string]string{"LICENSE": "free", "connector": program})
	gateway := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(m.archive)
	}))
	t.Cleanup(gateway.Close)
	sum := sha256.Sum256(m.archive)
	m.update = &Update{
		Program: Program(path), Version: "0.9.0", Config: "/c.json", Timeout: time.Minute,
		Offer: &link.Offer{
			Version: "0.9.1", URL: gateway.URL, Size: int64(len(m.archive)),
			SHA256: hex.EncodeToString(sum[:]),
		},
		Services: []Service{{
			Plan: service.Plan{Name: "postern-connector", Config: "/c.json"}, Restart: m.restart,
			Socket: "service",
		}},
		Inspect: m.inspect,
		Report:  func(format string, values ...any) { m.lines = append(m.lines, fmt.Sprintf(format, values...)) },
	}
	return m
}

// packed returns an archive with some files.
func packed(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	archive := tar.NewWriter(zipped)
	for name, content := range files {
		if err := archive.WriteHeader(&tar.Header{
			Name: name, Size: int64(len(content)), Mode: 0o755,
			Typeflag: tar.TypeReg,
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// restart is the service manager. A service that comes up replaces its bridge.
func (m *machine) restart() error {
	m.restarts++
	bridges, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "connector-*", "*.state")) // the pattern is valid
	for _, state := range bridges {
		if m.up(m.restarts) {
			if err := os.WriteFile(strings.Replace(state, ".state", ".replaced", 1), nil, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *machine) inspect(_ context.Context, socket string) (Process, error) {
	switch socket {
	case "":
		return Process{}, errors.New("no connector is running")
	case "service":
		return Process{PID: 1 + m.restarts, Version: "0.9.0", Online: m.up(m.restarts), State: "waiting"}, nil
	}
	state, err := os.ReadFile(socket + ".state")
	return Process{PID: 100, Online: string(state) == "online\n", State: string(state)}, err
}

// expect checks the program and that no other file is left.
func (m *machine) expect(program string) {
	m.t.Helper()
	content, err := os.ReadFile(string(m.update.Program))
	if err != nil || !strings.Contains(string(content), program) {
		m.t.Errorf("the program is %q, %v", content, err)
	}
	if info, err := os.Stat(string(m.update.Program)); err != nil || info.Mode() != 0o751 {
		m.t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	for _, folder := range []string{m.folder, os.Getenv("TMPDIR")} {
		left, _ := filepath.Glob(filepath.Join(folder, "*"))
		for _, path := range left {
			if path != string(m.update.Program) {
				m.t.Errorf("%s is left", path)
			}
		}
	}
}

func TestUpdate(t *testing.T) {
	m := newMachine(t, works)
	if err := os.WriteFile(m.update.Program.fresh(), []byte("of an interrupted update"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.update.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.expect("echo online")
	if m.restarts != 1 {
		t.Errorf("%d restarts", m.restarts)
	}
	if got := strings.Join(m.lines, "\n"); !strings.Contains(got, "Version 0.9.1 connects") ||
		!strings.Contains(got, "The service postern-connector runs the new version.") {
		t.Errorf("it reports %s", got)
	}
}

// All services of the program are restarted, each with a bridge of its own, except a service
// with which the new program does not connect.
func TestSeveralServices(t *testing.T) {
	m := newMachine(t, works)
	for _, name := range []string{"rack", "refused"} {
		m.update.Services = append([]Service{{
			Plan:    service.Plan{Name: name, Config: "/" + name + ".json"},
			Restart: m.restart, Socket: "service",
		}}, m.update.Services...)
	}
	if err := m.update.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.expect("echo online")
	if m.restarts != 2 {
		t.Errorf("%d restarts", m.restarts)
	}
	got := strings.Join(m.lines, "\n")
	if first, rest, _ := strings.Cut(got, "The service "); !strings.HasPrefix(rest, "postern-connector") {
		t.Errorf("the service that the first bridge is of comes later: %s%s", first, rest)
	}
	for _, want := range []string{
		"The service postern-connector runs the new version.", "The service rack runs the new version.",
		"The service refused still runs the old version", "Error: refused",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not report %q:\n%s", want, got)
		}
	}
}

// An update without a newer version restarts services that run another version.
func TestOutdatedServices(t *testing.T) {
	m := newMachine(t, works)
	if err := os.WriteFile(string(m.update.Program), []byte(works), 0o751); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.update.Program.old(), []byte("of an interrupted update"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.update.Offer, m.update.Version = nil, "0.9.1"
	if err := m.update.Run(t.Context()); err != nil || m.restarts != 1 {
		t.Errorf("%v, %d restarts", err, m.restarts)
	}
	m.update.Version = "0.9.0" // as the service
	if err := m.update.Run(t.Context()); err != nil || m.restarts != 1 {
		t.Errorf("%v, %d restarts", err, m.restarts)
	}
	m.expect("echo online")
}

// A bridge that still has requests outlives the update, but leaves no files.
func TestBridgeLeavesNoFiles(t *testing.T) {
	b := &bridge{folder: filepath.Join(t.TempDir(), "bridge"), ended: make(chan struct{})}
	if err := errors.Join(os.Mkdir(b.folder, 0o700), os.WriteFile(b.log(), []byte("msg=online"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if b.leave(0) {
		t.Error("it has ended")
	}
	if _, err := os.Stat(b.folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is left: %v", err)
	}
}

// Without a service, the file is replaced, and the bridge ends.
func TestUpdateWithoutService(t *testing.T) {
	m := newMachine(t, works)
	m.update.Services = nil
	if err := m.update.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.expect("echo online")
}

// After each of these failures, everything is as before.
func TestBadOffers(t *testing.T) {
	for name, tt := range map[string]struct {
		program string
		change  func(*machine)
		want    string
	}{
		"does not start": {"#!/no/such/shell\n", func(*machine) {}, "it does not start"},
		"crashes":        {crashes, func(*machine) {}, "(exit status 7): Error: the illegal instruction"},
		"does not connect": {
			hangs, func(m *machine) { m.update.Timeout = 300 * time.Millisecond },
			"its tunnel is still down after 300ms",
		},
		"another hash": {
			works, func(m *machine) { m.update.Offer.SHA256 = strings.Repeat("0", 64) },
			"its SHA-256 is not the one",
		},
		"truncated": {works, func(m *machine) { m.archive = m.archive[:100] }, "it ended after 100 of"},
		"too large": {works, func(m *machine) { m.archive = append(m.archive, 0) }, "it is larger than"},
		"no server": {works, func(m *machine) { m.update.Offer.URL = "http://127.0.0.1:1/a" }, "downloading the connector"},
		"no archive": {
			works, func(m *machine) { m.offer([]byte("<html>not found</html>")) },
			"unpacking the connector: gzip: invalid header",
		},
		"no program": {
			works, func(m *machine) { m.offer(packed(t, map[string]string{"x/connector": ""})) },
			"the archive has no connector",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, tt.program)
			tt.change(m)
			err := m.update.Run(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v", err)
			}
			m.expect("the old one")
			if m.restarts != 0 {
				t.Error("a service was restarted")
			}
		})
	}
}

func (m *machine) offer(archive []byte) {
	sum := sha256.Sum256(archive)
	m.archive, m.update.Offer.Size, m.update.Offer.SHA256 = archive, int64(len(archive)), hex.EncodeToString(sum[:])
}

// A service that does not come up with the new program gets the old one back.
func TestServiceFails(t *testing.T) {
	m := newMachine(t, works)
	m.up = func(restart int) bool {
		if m.update.Timeout = time.Minute; restart == 1 {
			m.update.Timeout = time.Second // for the service, not for the bridge before
		}
		return restart != 1
	}
	err := m.update.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(),
		"version 0.9.0 is back: the service postern-connector did not come up again: no tunnel after 1s: waiting") {
		t.Errorf("error %v", err)
	}
	if m.restarts != 2 {
		t.Errorf("%d restarts", m.restarts)
	}
	m.expect("the old one")
}

// After an interruption before the new program has connected, everything is as before.
func TestInterrupted(t *testing.T) {
	m := newMachine(t, hangs)
	ctx, cancel := context.WithCancel(t.Context())
	m.update.Inspect = func(ctx context.Context, socket string) (Process, error) {
		cancel() // the bridge has started
		return m.inspect(ctx, socket)
	}
	if err := m.update.Run(ctx); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("error %v", err)
	}
	m.expect("the old one")
}

func TestPackaged(t *testing.T) {
	p := Program("/opt/connector")
	owned := func(by string) func(string, ...string) *exec.Cmd {
		return func(name string, args ...string) *exec.Cmd {
			if args[len(args)-1] != string(p) {
				t.Errorf("%s %v", name, args)
			}
			if name == by {
				return exec.Command("true")
			}
			return exec.Command("false")
		}
	}
	for by, want := range map[string]string{"dpkg": "apt install", "rpm": "dnf upgrade", "apk": "apk upgrade", "": ""} {
		if got := p.owner(owned(by)); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("of %s: %s", by, got)
		}
	}
}

// A download follows redirects on the gateway's host, such as to HTTPS, and to no other.
func TestRedirects(t *testing.T) {
	archive := packed(t, map[string]string{"connector": "the new one"})
	sum := sha256.Sum256(archive)
	var requests atomic.Int32
	target := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		_, _ = w.Write(archive)
	}))
	defer target.Close()
	for to, want := range map[string]string{
		target.URL: "",
		strings.Replace(target.URL, "127.0.0.1", "localhost", 1): "127.0.0.1 redirects to another host",
		"": "redirects more than 5 times", // to itself
	} {
		requests.Store(0)
		gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, to+"/", http.StatusFound)
		}))
		offer := link.Offer{URL: gateway.URL, Size: int64(len(archive)), SHA256: hex.EncodeToString(sum[:])}
		err := fetch(t.Context(), offer, filepath.Join(t.TempDir(), "archive"), nil)
		gateway.Close()
		if want == "" && (err != nil || requests.Load() != 1) ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want) || requests.Load() != 0) {
			t.Errorf("a redirect to %q: %d requests, %v", to, requests.Load(), err)
		}
	}
}
