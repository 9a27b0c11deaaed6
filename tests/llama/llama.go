// Package llama starts a real llama.cpp server with the scripted model of package tinymodel. fetch.sh unpacks
// the server from Debian into .cache/ of the repository. Nothing is installed on the system.
package llama

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/llama/tinymodel"
	"github.com/postern-dev/postern/tests/rig"
)

// Alias is the model's name at the server.
const Alias = "tinyscript"

// Options are the options of a server.
type Options struct {
	Slots int      // number of parallel requests, default 4
	Slow  bool     // some milliseconds per token instead of a fraction of one
	Args  []string // additional arguments for llama-server
}

// A Server is a running llama-server.
type Server struct {
	URL string // http://127.0.0.1:port, without /v1
	*harness.Process
}

// Start starts a server and waits until it has loaded the model. If there is no server, the test fails, or is
// skipped with POSTERN_SKIP_LLAMA=1.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	if os.Getenv("POSTERN_SKIP_LLAMA") == "1" {
		t.Skip("POSTERN_SKIP_LLAMA=1: not testing against a real llama-server")
	}
	dir := t.TempDir()
	server, model, err := prepare(dir, o)
	if err != nil {
		t.Fatalf("%v\n(set POSTERN_SKIP_LLAMA=1 to skip the tests with a real llama-server)", err)
	}
	if o.Slots == 0 {
		o.Slots = 4
	}
	addr := harness.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	args := []string{
		"-m", model, "-a", Alias, "--host", "127.0.0.1", "--port", port,
		"-c", strconv.Itoa(4096 * o.Slots), "-np", strconv.Itoa(o.Slots),
		"-t", "1", "--jinja", "--no-ui", "--offline", "--slots",
	}
	s := &Server{URL: "http://" + addr}
	s.Process = harness.StartProcess(t, dir, "llama-server", exec.Command(server, append(args, o.Args...)...))
	harness.Poll(t, harness.Patience, "starting llama-server", func(ctx context.Context) error {
		if !s.Running() {
			t.Fatalf("llama-server has ended while starting")
		}
		return get(ctx, s.URL+"/health", nil)
	})
	return s
}

// Busy returns the number of slots that are computing an answer.
func (s *Server) Busy(ctx context.Context) (int, error) {
	var slots []struct {
		Processing bool `json:"is_processing"`
	}
	if err := get(ctx, s.URL+"/slots", &slots); err != nil {
		return 0, err
	}
	n := 0
	for _, slot := range slots {
		if slot.Processing {
			n++
		}
	}
	return n, nil
}

func get(ctx context.Context, url string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// prepare fetches the server if necessary, writes the model, and returns the paths of both. Several processes
// may call it at the same time.
func prepare(dir string, o Options) (server, model string, err error) {
	root, err := rig.Root()
	if err != nil {
		return "", "", err
	}
	cache := filepath.Join(root, ".cache")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", "", fmt.Errorf("creating the cache folder: %w", err)
	}
	unlock, err := rig.Lock(filepath.Join(cache, "llama.lock"))
	if err != nil {
		return "", "", err
	}
	defer unlock()
	server = filepath.Join(cache, "llama-server", "llama-server")
	if _, err := os.Stat(server); err != nil {
		out, err := exec.Command(filepath.Join(root, "tests", "llama", "fetch.sh"), filepath.Dir(server)).CombinedOutput()
		if err != nil {
			return "", "", fmt.Errorf("fetching llama-server: %w\n%s", err, out)
		}
	}
	var shape tinymodel.Options
	if o.Slow {
		shape = tinymodel.Options{Layers: 8, FFN: 4096}
	}
	model = filepath.Join(dir, Alias+".gguf")
	return server, model, writeModel(model, shape)
}

func writeModel(path string, shape tinymodel.Options) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the model: %w", err)
	}
	if err := tinymodel.Write(f, shape); err != nil {
		f.Close()
		return fmt.Errorf("writing the model: %w", err)
	}
	return f.Close()
}
