package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/rig/freeport"
	"github.com/postern-dev/postern/tests/upstream"
)

// Ports of docs/cluster/run.sh, relative to the balancer's port.
const (
	edgePort   = 1 // first of three edges
	etcdPort   = 4
	memberPort = 5 // of etcd
	modelPort  = 6
	usedPorts  = 7
)

// script is a run of docs/cluster/run.sh.
type script struct {
	*harness.Process
	dir  string
	port int
	key  string
}

// startScript starts the script and waits until it has printed a sample request.
func startScript(t *testing.T, args ...string) *script {
	t.Helper()
	etcd, err := rig.EtcdProgram()
	must(t, err)
	dir, root := t.TempDir(), harness.Root(t)
	must(t, os.Symlink(etcd, filepath.Join(dir, "etcd")))
	port, err := freeport.Row(usedPorts)
	must(t, err)
	s := &script{dir: filepath.Join(dir, "tmp"), port: port}
	must(t, os.Mkdir(s.dir, 0o700))
	cmd := exec.Command(filepath.Join(root, "docs/cluster/run.sh"), args...)
	cmd.Env = []string{
		"PATH=" + strings.Join([]string{filepath.Join(root, "bin"), dir, os.Getenv("PATH")}, ":"),
		"PORT=" + strconv.Itoa(port), "HOME=" + dir, "TMPDIR=" + s.dir,
	}
	s.Process = harness.StartProcess(t, dir, "run", cmd)
	t.Cleanup(func() { // runs before the process is killed
		if s.Running() {
			s.end(t)
		}
	})
	key := regexp.MustCompile(`Authorization: Bearer (\S+)"`)
	harness.Poll(t, limit, "starting a cluster", func(context.Context) error {
		if !s.Running() {
			t.Fatal("the script has ended: " + s.Log())
		}
		m := key.FindStringSubmatch(s.Log())
		if m == nil || !strings.Contains(s.Log(), "Ctrl-C ends everything.") {
			return errors.New("it has not started")
		}
		s.key = m[1]
		return nil
	})
	return s
}

// url returns the URL of a port.
func (s *script) url(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", s.port+port) }

// pid returns the process id of a program that the script has started.
func (s *script) pid(t *testing.T, name string) int {
	t.Helper()
	m := regexp.MustCompile(`started ` + name + ` \(pid (\d+)\)`).FindStringSubmatch(s.Log())
	if m == nil {
		t.Fatalf("no %s in %s", name, s.Log())
	}
	pid, _ := strconv.Atoi(m[1])
	return pid
}

// send sends a request with the key. Any status but 200 is an error.
func (s *script) send(ctx context.Context, method, url, body string) error {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+s.key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if response.Body.Close(); response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return nil
}

// chats sends twelve requests to the balancer, at least four for each edge.
func (s *script) chats(ctx context.Context) error {
	for range 12 {
		if err := s.send(ctx, http.MethodPost, s.url(0)+"/v1/chat/completions", harness.Chat("m", "")); err != nil {
			return err
		}
	}
	return nil
}

// end ends the script with SIGINT. Then nothing may listen at its ports, and its folder must be gone.
func (s *script) end(t *testing.T) {
	t.Helper()
	s.Signal(t, syscall.SIGINT)
	s.WaitExit(t, limit)
	for port := range usedPorts {
		if conn, err := net.DialTimeout("tcp", strings.TrimPrefix(s.url(port), "http://"), oneTry); err == nil {
			conn.Close()
			t.Errorf("port %d still listens", port)
		}
	}
	if entries, err := os.ReadDir(s.dir); err != nil || len(entries) > 0 {
		t.Errorf("left in the folder: %v, %v", entries, err)
	}
}

// closed checks that a page in a browser on this machine can neither read nor write the store.
func (s *script) closed(t *testing.T) {
	t.Helper()
	const put = `{"key":"cG9zdGVybi9h","value":"YQ=="}`
	for _, page := range []struct{ method, url, host, body string }{
		{http.MethodPost, s.url(etcdPort) + "/v3/kv/put", "", put},
		{http.MethodPost, s.url(etcdPort) + "/v3/kv/put", "evil.example", put},
		{http.MethodGet, s.url(etcdPort) + "/health", "evil.example", ""},
		{http.MethodGet, s.url(memberPort) + "/members", "evil.example", ""},
	} {
		request, err := http.NewRequestWithContext(t.Context(), page.method, page.url, strings.NewReader(page.body))
		must(t, err)
		request.Host = page.host
		request.Header.Set("Content-Type", "text/plain")
		request.Header.Set("Origin", "https://evil.example")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			continue // this port uses TLS
		}
		if response.Body.Close(); response.StatusCode < http.StatusBadRequest {
			t.Errorf("%s %s for the host %q: status %d", page.method, page.url, page.host, response.StatusCode)
		}
	}
}

const readyPath = "/.well-known/postern/ready"

// The script of the manual runs a cluster. Requests succeed after a gateway was killed, and it starts again
// with the command that the script prints. Ctrl-C ends all processes, including one that hangs.
func TestClusterScript(t *testing.T) {
	t.Parallel()
	model := upstream.Start(t)
	model.Handle("", upstream.Echo)
	s := startScript(t, model.URL, "m")
	s.closed(t)
	harness.Poll(t, limit, "answers of the model at all edges", s.chats)

	must(t, syscall.Kill(s.pid(t, "edge-3"), syscall.SIGKILL))
	for range 30 {
		if err := s.send(t.Context(), http.MethodGet, s.url(0)+"/v1/models", ""); err != nil {
			t.Errorf("the balancer without edge-3: %v", err)
		}
	}
	harness.Poll(t, limit, "answers of the model without edge-3", s.chats)
	again := regexp.MustCompile(`Start edge-3 again: (.*)`).FindStringSubmatch(s.Log())
	if again == nil {
		t.Fatal("no command that starts edge-3")
	}
	cmd := exec.Command("sh", "-c", "exec "+again[1])
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(harness.Root(t), "bin")+":"+os.Getenv("PATH"))
	second := harness.StartProcess(t, t.TempDir(), "edge-3-again", cmd)
	harness.Poll(t, limit, "the start of edge-3", func(ctx context.Context) error {
		return s.send(ctx, http.MethodGet, s.url(edgePort+2)+readyPath, "")
	})
	second.Signal(t, syscall.SIGTERM)
	second.WaitExit(t, limit)

	must(t, syscall.Kill(s.pid(t, "edge-2"), syscall.SIGSTOP))
	s.end(t)
}

// Without a model server, the script starts a model that always gives the same answer. The request that it prints
// works.
func TestClusterScriptAlone(t *testing.T) {
	t.Parallel()
	s := startScript(t)
	curl := regexp.MustCompile(`(?s)\n  (curl .*?\}')\n`).FindStringSubmatch(s.Log())
	if curl == nil {
		t.Fatal("no request in " + s.Log())
	}
	out, err := exec.Command("sh", "-c", curl[1]).Output()
	if err != nil || !strings.Contains(string(out), "Hello, from no model") ||
		!strings.HasSuffix(string(out), upstream.Done) {
		t.Errorf("curl printed %s, %v", out, err)
	}
	if err := s.send(t.Context(), http.MethodGet, s.url(modelPort)+"/v1/models", ""); err != nil {
		t.Errorf("the models of the script: %v", err)
	}
	s.end(t)
}

// Without etcd, the script starts nothing and explains where to get it.
func TestClusterScriptWithoutEtcd(t *testing.T) {
	t.Parallel()
	root := harness.Root(t)
	cmd := exec.Command(filepath.Join(root, "docs/cluster/run.sh"))
	cmd.Env = []string{"PATH=" + filepath.Join(root, "bin") + ":/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "etcd: not found\n") ||
		!strings.Contains(string(out), "etcd-io/etcd/releases") {
		t.Errorf("%v\n%s", err, out)
	}
}
