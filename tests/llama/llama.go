// Package llama starts a real llama.cpp server, which fetch.sh unpacks from Debian into .cache/ of the repository.
// Nothing is installed on the system.
//
// Its model, testdata/tinyscript.gguf.gz, is a llama transformer of two layers, and so small that it needs no download.
// Its weights were computed, not trained, so that it recites scripts: the output row of each token is the sum of the
// codes of the tokens that it follows. A program wrote it: the history of this repository has it in
// tests/llama/tinymodel.
//
// The last message selects the script. A marker such as [[long]] in it selects the script of that name: answer, done,
// call, saycall, parallel, badcall, think, thinkcall, long, unicode, sse or empty. Without a marker, a user message in
// a request with tools selects "call", a tool result "done", and any other message "answer". long starts over without
// an end.
package llama

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig"
)

// Answer is the default reply: 38 tokens, then finish_reason "stop".
const Answer = "Hello! I am tinyscript, a very small language model that runs inside a real model server. " +
	"My weights were written by a program, so every reply is this same short paragraph. " +
	"Nothing I say is interesting, but each token takes a genuine trip through the network. Goodbye."

// Done is the reply after a tool result.
const Done = "The tool has answered, and its result is now part of our conversation. No further calls are needed; " +
	"that is all."

// Unicode is the reply to [[unicode]]. Its tokens split runes, so a server that streams it must keep bytes
// back.
const Unicode = "Grüße, naïve façade — “quotes”… 你好，世界。 こんにちは 🦙🚀👩‍👩‍👧‍👦 עברית العربية \u200b zero-width, e\u0301 " +
	"combining, 𝔘𝔫𝔦 ends."

// SSE is the reply to [[sse]]: text that looks like an event stream.
const SSE = "Next comes text that looks like a stream:\n\ndata: {\"choices\":[]}\n\ndata: [DONE]\n\nevent: error\n: " +
	"comment\n\nid: 7\nretry: 1\n\nand this is still the same reply."

// Alias is the model's name at the server.
const Alias = "tinyscript"

// Options are the options of a server.
type Options struct {
	Slots   int      // number of parallel requests, default 4
	Context int      // number of tokens for each of them, default 4096; [[long]] fills 16384 in many seconds
	Flags   []string // that make it a server for something else than chats, such as --reranking
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
	server, err := fetch()
	model := filepath.Join(dir, Alias+".gguf")
	if err == nil {
		err = unpack(model)
	}
	if err != nil {
		t.Fatalf("%v\n(set POSTERN_SKIP_LLAMA=1 to skip the tests with a real llama-server)", err)
	}
	slots := cmp.Or(o.Slots, 4)
	addr := harness.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	args := []string{
		"-m", model, "-a", Alias, "--host", "127.0.0.1", "--port", port,
		"-c", strconv.Itoa(slots * cmp.Or(o.Context, 4096)), "-np", strconv.Itoa(slots),
		"-t", "1", "--jinja", "--no-ui", "--offline", "--slots",
	}
	s := &Server{URL: "http://" + addr}
	s.Process = harness.StartProcess(t, dir, "llama-server", exec.Command(server, append(args, o.Flags...)...))
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

// fetch returns the path of the server, and fetches it first if necessary. Several processes may call it at the same
// time.
func fetch() (string, error) {
	root, err := rig.Root()
	if err != nil {
		return "", err
	}
	cache := filepath.Join(root, ".cache")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache folder: %w", err)
	}
	unlock, err := rig.Lock(filepath.Join(cache, "llama.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	server := filepath.Join(cache, "llama-server", "llama-server")
	if _, err := os.Stat(server); err != nil {
		out, err := exec.Command(filepath.Join(root, "tests", "llama", "fetch.sh"), filepath.Dir(server)).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("fetching llama-server: %w\n%s", err, out)
		}
	}
	return server, nil
}

//go:embed testdata/tinyscript.gguf.gz
var compressed []byte

// unpack writes the model.
func unpack(path string) error {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return fmt.Errorf("unpacking the model: %w", err)
	}
	model, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("unpacking the model: %w", err)
	}
	return os.WriteFile(path, model, 0o600)
}
