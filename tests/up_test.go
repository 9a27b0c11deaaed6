package tests

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/llama"
	"github.com/postern-dev/postern/tests/upstream"
)

// `caddy gateway up` prints a curl line that works with every kind of model server.
func TestUp(t *testing.T) {
	t.Run("a given model server", func(t *testing.T) {
		s := upstream.Start(t)
		s.Handle("GET /v1/models", upstream.JSON(`{"object":"list","data":[{"id":"qwen3:8b","object":"model"}]}`))
		s.Handle("", func(x *upstream.Exchange) { upstream.Events(storyOf(x.Request.Model)...)(x) })
		out, _ := runUp(t, "--connect", s.URL)
		if want := lines(storyOf("qwen3:8b")...); out != want {
			t.Errorf("curl printed %q, want %q", out, want)
		}
	})
	t.Run("a real model server", func(t *testing.T) {
		out, _ := runUp(t, "--connect", llama.Start(t, llama.Options{}).URL)
		word := strings.Fields(llama.Answer)[0]
		if !strings.Contains(out, word) || !strings.HasSuffix(out, upstream.Done) {
			t.Errorf("curl printed %s", out)
		}
	})
	t.Run("what is found", func(t *testing.T) {
		usual := false // whether something on this machine listens where model servers do
		for _, port := range []string{"11434", "8080", "1234", "8000"} {
			if conn, err := net.Dial("tcp", "localhost:"+port); err == nil {
				conn.Close()
				usual = true
			}
		}
		out, log := runUp(t)
		if !strings.HasSuffix(out, upstream.Done) {
			t.Errorf("curl printed %s", out)
		}
		if !usual && !strings.Contains(log, "scripted") {
			t.Errorf("the scripted model is not announced:\n%s", log)
		}
	})
}

// runUp starts `up`, runs the curl line that it prints, ends it as Ctrl-C does
// and returns what curl and it printed.
func runUp(t *testing.T, args ...string) (out, log string) {
	t.Helper()
	root := harness.Root(t)
	dir := t.TempDir()
	cmd := exec.Command(filepath.Join(root, "bin", "caddy"),
		append([]string{"gateway", "up", "--listen", harness.FreeAddr(t)}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir+"/data", "XDG_CONFIG_HOME="+dir+"/config")
	p := harness.StartProcess(t, dir, "up", cmd)
	line := curlLine(t, p)
	printed, err := exec.Command("sh", "-c", line).Output()
	if err != nil {
		t.Errorf("%s: %v", line, err)
	}
	p.Signal(t, syscall.SIGINT)
	if code := p.WaitExit(t, limit); code != 0 {
		t.Errorf("up ended with code %d", code)
	}
	return string(printed), p.Log()
}
