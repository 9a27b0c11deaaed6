package clients

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/postern-dev/postern/connector/clients"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// agents are the commands of clients that run tools until the model ends its turn.
var agents = map[string]string{
	"claude":   "claude -p 'Say hello.' --allowedTools Read",
	"codex":    "codex exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox 'Say hello.'",
	"opencode": "opencode run 'Say hello.'",
}

// arguments are those of the tool that a scripted agent calls, by its name in each client.
var arguments = map[string]string{
	"Read": `{"file_path":"%s"}`, "read": `{"filePath":"%s"}`, "exec_command": `{"cmd":"cat %s"}`,
	"shell_command": `{"command":"cat %s"}`, "shell": `{"command":["cat","%s"]}`,
}

// agent returns the replies of a model that calls a tool until the conversation has a number of turns.
func agent(turns int, file string) func(q *upstream.ChatRequest) upstream.Reply {
	return func(q *upstream.ChatRequest) upstream.Reply {
		results := 0
		for _, raw := range q.Messages {
			var m struct{ Role string }
			if json.Unmarshal(raw, &m) == nil && m.Role == "tool" {
				results++
			}
		}
		var tools []struct{ Function struct{ Name string } }
		_ = json.Unmarshal(q.Tools, &tools) // there may be none
		for _, tool := range tools {
			if a := arguments[tool.Function.Name]; a != "" && results+1 < turns {
				return upstream.Reply{Tool: tool.Function.Name, Arguments: fmt.Sprintf(a, file)}
			}
		}
		return upstream.Reply{Text: answer}
	}
}

// windowed starts a gateway with a model server that has a window.
func windowed(t *testing.T, w *upstream.Windowed) (g *harness.Gateway, v clients.Values) {
	t.Helper()
	g = harness.StartInProcess(t, inprocess.Options{})
	_, key := g.Key(t, "clients", "*")
	up := upstream.Start(t)
	w.Serve(up, model)
	g.Deploy(t, model, g.Connector(t, "box", up.URL).ID, "", model)
	return g, clients.Values{Base: g.URL, Model: model, Key: key}
}

// outputLimit is what our files of Claude Code and opencode limit answers to.
var outputLimit = regexp.MustCompile(`("CLAUDE_CODE_MAX_OUTPUT_TOKENS": "|"output": )\d+`)

// Agents that ask for more output than a window has left come to the end of ten turns, as with a file of their own.
func TestStrictServer(t *testing.T) {
	install(t)
	for _, c := range clients.All() {
		command := agents[c.ID]
		if command == "" {
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			home := t.TempDir()
			file := filepath.Join(home, "notes.txt")
			write(t, file, "Some notes.\n")
			w := &upstream.Windowed{Window: 32768, Count: upstream.Ours(1.1), Reply: agent(10, file)}
			_, v := windowed(t, w)
			settings := outputLimit.ReplaceAllString(c.File.Text(v), "${1}32000")
			write(t, filepath.Join(home, c.File.Folder, c.File.Paths[len(c.File.Paths)-1]), settings)
			run(t, home, command, answer)
			answered, _, refused := w.Numbers()
			if t.Logf("%d answers, %d refusals", answered, refused); answered < 10 {
				t.Errorf("%d answers", answered)
			}
		})
	}
}

// Claude Code does not go on with prompts that were cut.
func TestCuttingServer(t *testing.T) {
	install(t)
	for _, c := range clients.All() {
		if c.ID != "claude" {
			continue
		}
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprint("known ", known), func(t *testing.T) {
				w := &upstream.Windowed{Window: 4096, Overflow: upstream.CutsToHalf, Count: upstream.Ours(1.1)}
				g, v := windowed(t, w)
				if known {
					g.Manage(t, http.MethodPost, "/deployments/"+url.PathEscape(model)+"/measure", struct{}{}, nil)
				}
				_, before, _ := w.Numbers()
				for n := range 7 {
					out, err := start(t, homeWith(t, c, v), agents[c.ID])
					_, after, _ := w.Numbers()
					t.Logf("run %d: %v, %.300s", n, err, out)
					if err == nil && after > before && (known || n > 0) {
						t.Errorf("run %d is answered, although its prompt was cut", n)
					}
					before = after
				}
			})
		}
	}
}
