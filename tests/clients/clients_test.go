// Package clients runs programs of npm with what the table of clients says for them, each in a home of its own.
package clients

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/scripted"
	"github.com/postern-dev/postern/connector/clients"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/upstream"
)

// model has characters that mean something to shells, files and paths.
const model, answer = "org/qwen3:8b", "The answer of the model."

const prompt = " -p 'Say hello.'"

// commands are what starts a client, after its files are written.
var commands = map[string]string{
	"claude": "claude" + prompt, "codex": "codex exec --skip-git-repo-check 'Say hello.'",
	"opencode": "opencode run 'Say hello.'", "continue": "cn" + prompt, "cline": "cline 'Say hello.'",
	"qwen": "qwen" + prompt,
}

// Each client on npm answers with its own file, and each snippet for Node or a shell as it is.
func TestClients(t *testing.T) {
	install(t)
	g := harness.StartInProcess(t, inprocess.Options{})
	_, key := g.Key(t, "clients", "*")
	up := upstream.Start(t)
	up.Handle("", func(x *upstream.Exchange) {
		var request struct{ Stream bool }
		if json.Unmarshal(x.Request.Body, &request) == nil && !request.Stream {
			upstream.JSON(upstream.Completion(model, answer))(x)
			return
		}
		upstream.Events(upstream.Role(model), upstream.Delta(model, answer), upstream.Finish(model, "stop"),
			upstream.Usage(model, 100, 5), upstream.Done)(x)
	})
	g.Deploy(t, model, g.Connector(t, "box", up.URL).ID, "", model)
	v := clients.Values{Base: g.URL, Model: model, Key: key, Window: 65536}
	ran := 0
	for _, c := range clients.All() {
		if command := commands[c.ID]; command != "" {
			ran++
			t.Run(c.ID, func(t *testing.T) {
				run(t, homeWith(t, c, v), command, answer)
			})
		}
		for _, s := range c.Snippets(v) {
			code := s.Code
			switch s.Name {
			case "curl":
			case "claude", "copilot":
				code += prompt
			case "openai-node", "anthropic-node":
				path, err := filepath.Abs(filepath.Join("node", s.Name+".mjs")) // beside node_modules, where Node looks
				if err != nil {
					t.Fatal(err)
				}
				write(t, path, code)
				t.Cleanup(func() { _ = os.Remove(path) })
				code = "node '" + path + "'"
			default:
				continue
			}
			ran++
			t.Run(s.Name, func(t *testing.T) { run(t, t.TempDir(), code, answer) })
		}
	}
	if ran != len(commands)+5 {
		t.Errorf("%d programs ran", ran)
	}
	for _, r := range up.Requests() {
		if r.Model != model && r.Method == "POST" {
			t.Errorf("a client asks for the model %q", r.Model)
		}
	}
}

// Agents come to an end with the model that newcomers meet first.
func TestScriptedModel(t *testing.T) {
	install(t)
	g := harness.StartInProcess(t, inprocess.Options{})
	_, key := g.Key(t, "clients", "*")
	up := httptest.NewServer(scripted.New(0))
	t.Cleanup(up.Close)
	g.Deploy(t, model, g.Connector(t, "box", up.URL).ID, "", scripted.ModelID)
	for _, c := range clients.All() {
		if command := commands[c.ID]; command != "" {
			t.Run(c.ID, func(t *testing.T) {
				home := homeWith(t, c, clients.Values{Base: g.URL, Model: model, Key: key, Window: 65536})
				run(t, home, command, "You wrote: ")
			})
		}
	}
}

func install(t *testing.T) {
	t.Helper()
	if testing.Short() || os.Getenv("POSTERN_SKIP_NODE") == "1" {
		t.Skip("installs a gigabyte of clients with npm")
	}
	if err := rig.NPM("node"); err != nil {
		t.Fatal(err)
	}
}

// homeWith returns a home with the file of a client.
func homeWith(t *testing.T, c clients.Client, v clients.Values) string {
	t.Helper()
	home := t.TempDir()
	if f := c.File; f != nil {
		write(t, filepath.Join(home, f.Folder, f.Paths[len(f.Paths)-1]), f.Text(v))
	}
	return home
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs a command in a home, and expects a text of the model in its output.
func run(t *testing.T, home, command, want string) {
	t.Helper()
	started := time.Now()
	out, err := start(t, home, command)
	if err != nil || !strings.Contains(out, want) {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	t.Logf("answered after %s", time.Since(started).Round(100*time.Millisecond))
}

// start runs a command in a home, and returns its output.
func start(t *testing.T, home, command string) (string, error) {
	t.Helper()
	bin, err := filepath.Abs("node/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir, cmd.WaitDelay = home, time.Second
	cmd.Env = []string{
		"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + home, "TERM=dumb",
		"CLINE_SESSION_BACKEND_MODE=local", // without a process that stays
		"DISABLE_AUTOUPDATER=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "COPILOT_AUTO_UPDATE=false",
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
