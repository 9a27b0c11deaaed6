// Package sdk runs programs that use the official OpenAI SDKs, for Node and for
// Go, against a gateway with a real llama-server and a scripted upstream.
package sdk

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/llama"
	"github.com/postern-dev/postern/tests/llama/tinymodel"
	"github.com/postern-dev/postern/tests/upstream"
)

func TestMain(m *testing.M) { harness.Main(m) }

// report is what both programs print.
type report struct {
	Models                                      []string
	Retrieved, Completed, AnsweredModel, Helper string
	RequestID, Streamed, Finish                 string
	Chunks, Usage                               int
	Errors                                      map[string]failure
}

type failure struct {
	Class     string
	Status    int
	Code      string
	RequestID bool
}

func TestNode(t *testing.T) {
	if os.Getenv("POSTERN_SKIP_NODE") == "1" {
		t.Skip("POSTERN_SKIP_NODE=1: not testing the OpenAI SDK for Node")
	}
	install(t)
	each(t, func(t *testing.T) *exec.Cmd {
		cmd := exec.Command("node", "check.mjs")
		cmd.Dir = "node"
		return cmd
	})
}

// install installs the SDK that the lock file names, unless it is there.
func install(t *testing.T) {
	t.Helper()
	lock, err := os.Stat("node/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	// npm writes this file at the end of an installation.
	if done, err := os.Stat("node/node_modules/.package-lock.json"); err == nil && !done.ModTime().Before(lock.ModTime()) {
		return
	}
	cmd := exec.Command("npm", "ci", "--no-audit", "--no-fund")
	cmd.Dir = "node"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("installing the OpenAI SDK for Node: %v\n%s\n(install Node.js with npm, or set POSTERN_SKIP_NODE=1)", err, out)
	}
}

func TestGo(t *testing.T) {
	program := t.TempDir() + "/sdk"
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "go"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program with the OpenAI SDK for Go: %v\n%s", err, out)
	}
	each(t, func(*testing.T) *exec.Cmd { return exec.Command(program) })
}

// each runs a program before a scripted upstream and a real llama-server.
func each(t *testing.T, command func(*testing.T) *exec.Cmd) {
	t.Run("scripted", func(t *testing.T) {
		up := upstream.Start(t)
		up.Handle("tiny", scripted)
		check(t, command(t), up.URL, "tiny", "Hello, world.", 3)
	})
	t.Run("llama", func(t *testing.T) {
		server := llama.Start(t, llama.Options{})
		check(t, command(t), server.URL, llama.Alias, tinymodel.Answer, 38)
	})
}

// scripted answers streamed or whole, as asked.
func scripted(x *upstream.Exchange) {
	if !bytes.Contains(x.Request.Body, []byte(`"stream":true`)) {
		upstream.JSON(upstream.Completion("tiny", "Hello, world."))(x)
		return
	}
	upstream.Events(upstream.Role("tiny"), upstream.Delta("tiny", "Hello, "), upstream.Delta("tiny", "world."),
		upstream.Finish("tiny", "stop"), upstream.Usage("tiny", 10, 3), upstream.Done)(x)
}

// check runs a program against a gateway before one upstream and checks what
// it saw.
func check(t *testing.T, cmd *exec.Cmd, url, model, text string, tokens int) {
	t.Helper()
	const public, cut = "org/tiny:1b", "cut"
	g := harness.Start(t, harness.Options{})
	_, key := g.Key(t, "sdk", "*")
	con := g.Connector(t, "box", url)
	g.Deploy(t, public, con.ID, "", model)
	dying := upstream.Start(t)
	dying.Handle("", func(x *upstream.Exchange) {
		x.Stream()
		x.Chunk(upstream.Role(cut))
		x.Sleep(50 * time.Millisecond)
		x.Die()
	})
	g.Deploy(t, cut, g.Connector(t, "dying", dying.URL).ID, "", "")

	cmd.Env = append(os.Environ(), "BASE_URL="+g.URL+"/v1", "API_KEY="+key, "MODEL="+public, "PROMPT="+harness.Prompt, "CUT="+cut)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, stderr.String())
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("decoding %s: %v", out, err)
	}
	if !slices.Equal(r.Models, []string{cut, public}) || r.Retrieved != public || r.AnsweredModel != public {
		t.Errorf("models %v, retrieved %s, answered as %s", r.Models, r.Retrieved, r.AnsweredModel)
	}
	if r.Completed != text || r.Streamed != text || r.Helper != text {
		t.Errorf("completed %q, streamed %q, by the helper %q; want %q", r.Completed, r.Streamed, r.Helper, text)
	}
	if r.Finish != "stop" || r.Usage != tokens || r.Chunks < 4 || !strings.HasPrefix(r.RequestID, "req_") {
		t.Errorf("finish %q, usage %d, %d chunks, request id %q", r.Finish, r.Usage, r.Chunks, r.RequestID)
	}
	for name, want := range map[string]failure{
		"wrongKey":        {"AuthenticationError", 401, "invalid_api_key", true},
		"unknownModel":    {"NotFoundError", 404, "model_not_found", true},
		"unknownRetrieve": {"NotFoundError", 404, "model_not_found", true},
		"badRequest":      {"BadRequestError", 400, "missing_required_parameter", true},
	} {
		if got := r.Errors[name]; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if got := r.Errors["cutStream"].Class; got != "APIError" {
		t.Errorf("a cut stream is reported as %s", got)
	}
}
