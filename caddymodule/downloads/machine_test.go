package downloads

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// machine is where the script runs, with a gateway.
type machine struct {
	*testing.T
	home   string // has a folder bin after an installation, and nothing else
	temp   string // for temporary files
	folder *Folder
	site   Site
	env    []string
	saved  []string // patterns of temporary files that stay
}

// program is a connector that prints its arguments.
const program = `#!/bin/sh
case $1 in
--version) [ -z "${BROKEN-}" ] || exit 1; echo "connector v0.9.0"; exit ;;
service)
	[ -z "${NO_SERVICE-}" ] || exit 1
	case $2${SERVICE-} in
	restart) echo "not installed" >&2; exit 5 ;;
	restartoffline) echo "connector $*"; echo "the tunnel is down" >&2; exit 1 ;;
	esac ;;
use) [ -z "${NO_USE-}" ] || { echo "no use" >&2; exit 3; }; cat ;;
pair) [ -z "${PAIRED-}" ] || { echo "already paired" >&2; exit 4; } ;;
esac
echo "connector $*"
`

const code = "PAIR-7K3M-Q9TX"

func newMachine(t *testing.T, verified bool, root ...string) *machine {
	t.Helper()
	m := &machine{T: t, home: t.TempDir(), temp: t.TempDir(), folder: NewFolder(t.TempDir())}
	m.env = append(os.Environ(), "HOME="+m.home, "TMPDIR="+m.temp)
	write(t, m.folder.path, archiveName(), packed(t))
	mux := http.NewServeMux()
	server := httptest.NewUnstartedServer(mux)
	if server.Start(); !verified {
		server.Close()
		server = httptest.NewTLSServer(mux)
	}
	t.Cleanup(server.Close)
	m.site = Site{server.URL, server.URL + "/console", "PIN", verified, strings.Join(root, "")}
	files := http.StripPrefix("/console/connectors/", http.FileServer(http.Dir(m.folder.path)))
	mux.HandleFunc("/console/connectors/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000") // as in the console
		files.ServeHTTP(w, r)
	})
	mux.HandleFunc("/console/install.sh",
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(m.script())) })
	mux.HandleFunc("/console/root.crt",
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(m.site.Root)) })
	mux.HandleFunc("/console/use.sh", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(Use.Shell(m.site, m.folder.Archives())))
	})
	return m
}

func archiveName() string {
	return "connector_0.9.0_" + runtime.GOOS + "_" + runtime.GOARCH + ".tar.gz"
}

// packed returns an archive of the program.
func packed(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	w := tar.NewWriter(zipped)
	must(t, w.WriteHeader(&tar.Header{Name: "connector", Mode: 0o755, Size: int64(len(program))}))
	if _, err := w.Write([]byte(program)); err != nil {
		t.Fatal(err)
	}
	must(t, w.Close())
	must(t, zipped.Close())
	return b.String()
}

func (m *machine) script() string { return Install.Shell(m.site, m.folder.Archives()) }

// run runs a command without a terminal, in an empty folder. It must leave nothing behind,
// except for the program and, for the line that saves the script, that one temporary file.
func (m *machine) run(input string, command ...string) (output string, status int) {
	m.Helper()
	dir := m.TempDir()
	defer func() {
		m.holds(dir)
		m.holds(m.home, "bin", "bin/connector")
		m.holds(m.temp, m.saved...)
	}()
	return m.runIn(dir, input, command...)
}

// outputs checks the status and the output of a script, which has URL in place of the gateway's.
func (m *machine) outputs(out string, status, wantStatus int, parts []string) {
	m.Helper()
	out = strings.ReplaceAll(out, m.site.URL, "URL")
	ok := status == wantStatus
	for _, part := range parts {
		text, not := strings.CutPrefix(part, "!")
		ok = ok && strings.Contains(out, text) != not
	}
	if !ok {
		m.Errorf("status %d, want %d with %q:\n%s", status, wantStatus, parts, out)
	}
}

// holds checks that a folder has no other files than these patterns.
func (m *machine) holds(dir string, allowed ...string) {
	m.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, _ fs.DirEntry, err error) error {
		matches := func(pattern string) bool { ok, _ := filepath.Match(pattern, path); return ok }
		if path != "." && !slices.ContainsFunc(allowed, matches) {
			m.Errorf("%s was left in %s", path, dir)
		}
		return err
	})
	if err != nil {
		m.Error(err)
	}
}

func (m *machine) runIn(dir, input string, command ...string) (output string, status int) {
	m.Helper()
	cmd := exec.CommandContext(m.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, m.env, strings.NewReader(input)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		m.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// installed reports whether the program is installed.
func (m *machine) installed() bool {
	_, err := os.Stat(filepath.Join(m.home, "bin", "connector"))
	return err == nil
}

// shells returns the shells of this machine that the script has to work in.
func shells(t *testing.T) (found [][]string) {
	t.Helper()
	for _, shell := range [][]string{{"dash"}, {"bash"}, {"busybox", "sh"}, {"sh"}} {
		if _, err := exec.LookPath(shell[0]); err == nil {
			found = append(found, shell)
		}
	}
	return found
}
