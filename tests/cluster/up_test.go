package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/upstream"
)

// upRun is a run of `caddy gateway up --edges 3`.
type upRun struct {
	*harness.Process
	URL, Key string
	Edges    []upProcess
	Etcd     upProcess
}

type upProcess struct {
	PID int
	URL string
}

// startUp starts a run with its data in dir, and waits until it serves.
func startUp(t *testing.T, dir, model string) *upRun {
	t.Helper()
	etcd, err := rig.EtcdProgram()
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(dir, "ready.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(filepath.Join(harness.Root(t), "bin", "caddy"), "gateway", "up",
		"--edges", "3", "--etcd", etcd, "--listen", harness.FreeAddr(t), "--connect", model, "--json")
	cmd.Env = []string{"HOME=" + dir, "XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir}
	cmd.Stdout = out
	u := &upRun{Process: harness.StartProcess(t, dir, "up", cmd)}
	harness.Poll(t, limit, "starting up", func(context.Context) error {
		if !u.Running() {
			t.Fatal("up has ended: " + u.Log())
		}
		data, err := os.ReadFile(out.Name())
		if err != nil {
			return err
		}
		return json.Unmarshal(data, u)
	})
	if len(u.Edges) != 3 {
		t.Fatalf("%d edges", len(u.Edges))
	}
	return u
}

// get returns the status of a GET with the key of the run.
func (u *upRun) get(ctx context.Context, url string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+u.Key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// await waits until a GET is answered with 200.
func (u *upRun) await(t *testing.T, url string) {
	t.Helper()
	harness.Poll(t, limit, "200 of "+url, func(ctx context.Context) error {
		status, err := u.get(ctx, url)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}
		return err
	})
}

// gone waits until nothing listens at the addresses of the run.
func (u *upRun) gone(t *testing.T) {
	t.Helper()
	for _, url := range []string{u.URL, u.Edges[0].URL, u.Edges[1].URL, u.Edges[2].URL, u.Etcd.URL} {
		harness.Poll(t, limit, "the end of "+url, func(context.Context) error {
			conn, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), oneTry)
			if err == nil {
				conn.Close()
				return fmt.Errorf("it still listens")
			}
			return nil
		})
	}
}

// closed checks that a page in a browser of this machine can neither read nor write the
// store.
func (u *upRun) closed(t *testing.T) {
	t.Helper()
	argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", u.Etcd.PID))
	if err != nil {
		t.Fatal(err)
	}
	_, peer, _ := strings.Cut(string(argv), "--listen-peer-urls\x00")
	peer, _, _ = strings.Cut(peer, "\x00")
	peer = "http://" + peer[strings.Index(peer, "127.0.0.1:"):]
	const put = `{"key":"cG9zdGVybi9h","value":"YQ=="}`
	for _, page := range []struct{ method, url, host, body string }{
		{http.MethodPost, u.Etcd.URL + "/v3/kv/put", "", put},
		{http.MethodPost, u.Etcd.URL + "/v3/kv/put", "evil.example", put},
		{http.MethodGet, u.Etcd.URL + "/health", "evil.example", ""},
		{http.MethodGet, peer + "/members", "evil.example", ""},
	} {
		request, err := http.NewRequestWithContext(t.Context(), page.method, page.url, strings.NewReader(page.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Host = page.host
		request.Header.Set("Content-Type", "text/plain")
		request.Header.Set("Origin", "https://evil.example")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			continue // the port of members has TLS
		}
		if response.Body.Close(); response.StatusCode < http.StatusBadRequest {
			t.Errorf("%s %s for the host %q: status %d", page.method, page.url, page.host, response.StatusCode)
		}
	}
}

const readyPath = "/.well-known/postern/ready"

// TestUpEdges kills an edge of a run, and starts it again as the run says. Ctrl-C ends all
// processes, also one that hangs, and so does the end of a run that is killed.
func TestUpEdges(t *testing.T) {
	t.Parallel()
	model := upstream.Start(t)
	model.Handle("GET /v1/models", upstream.JSON(`{"object":"list","data":[{"id":"m","object":"model"}]}`))
	model.Handle("", upstream.Echo)
	dir := t.TempDir()
	u := startUp(t, dir, model.URL)
	for _, e := range u.Edges {
		u.await(t, e.URL+readyPath)
	}
	u.closed(t)
	chat := func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.URL+"/v1/chat/completions", strings.NewReader(harness.Chat("m", "")))
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+u.Key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", response.StatusCode)
		}
		return nil
	}
	chats := func(ctx context.Context) error {
		for range 12 { // four at each edge
			if err := chat(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	harness.Poll(t, limit, "answers of the model at all edges", chats)

	killed := u.Edges[1]
	if err := syscall.Kill(killed.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	u.WaitLog(t, fmt.Sprintf("edge-2 (pid %d) has ended: signal: killed", killed.PID), limit)
	for range 30 {
		if status, err := u.get(t.Context(), u.URL+"/v1/models"); err != nil || status != http.StatusOK {
			t.Errorf("the balancer without edge-2: status %d, %v", status, err)
		}
	}
	harness.Poll(t, limit, "answers of the model without edge-2", chats)
	again := regexp.MustCompile(`(?m)^  (env XDG_DATA_HOME=.* run --config .*)$`)
	var line []string
	harness.Poll(t, limit, "the command that starts edge-2", func(context.Context) error {
		if line = again.FindStringSubmatch(u.Log()); line == nil {
			return fmt.Errorf("none in %s", u.Log())
		}
		return nil
	})
	second := harness.StartProcess(t, dir, "edge-2-again", exec.Command("sh", "-c", "exec "+line[1]))
	u.await(t, killed.URL+readyPath)
	second.Signal(t, syscall.SIGTERM)
	second.WaitExit(t, limit)

	if err := syscall.Kill(u.Edges[2].PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	u.Signal(t, syscall.SIGINT)
	if code := u.WaitExit(t, limit); code != 0 {
		t.Errorf("up ended with code %d", code)
	}
	u.gone(t)

	key := u.Key
	u = startUp(t, dir, model.URL)
	if u.Key != key {
		t.Error("the second run has another key")
	}
	u.Signal(t, syscall.SIGKILL)
	u.WaitExit(t, limit)
	u.gone(t)
}
