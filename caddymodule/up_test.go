package caddymodule

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/scripted"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// lateTunnel matches the log of a connector about a tunnel on an overloaded machine.
var lateTunnel = regexp.MustCompile(`msg="?(cannot connect|disconnected|the gateway does not answer|another tunnel ` +
	`replaces)`)

// newUp returns a run on ports of its own that searches only bases.
func newUp(connect string, bases ...string) (*up.Run, *bytes.Buffer) {
	messages := new(bytes.Buffer)
	return up.New(up.Options{
		Host: commandHost(), Connect: connect, Listen: "localhost:0", Search: bases,
		Messages: messages, Program: "caddy",
	}), messages
}

// ownDirectories keeps the run's database out of the user's directories.
func ownDirectories(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
}

// ask sends a request to the running gateway.
func ask(t *testing.T, ready *up.Ready, key, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, ready.URL+path, strings.NewReader(body))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	must(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("reading the answer: %v", err)
	}
	return resp.StatusCode, string(answer)
}

// Two runs on the same database: the first finds no model server, the second
// gets one.
func TestUpRuns(t *testing.T) {
	ownDirectories(t)
	first, messages := newUp("", closedServer(t))
	defer first.Stop()
	one, err := first.Start(t.Context())
	must(t, err)
	if !one.Scripted || len(one.Models) != 1 || one.Models[0] != scripted.ModelID {
		t.Errorf("first run: %+v", one)
	}
	status, answer := ask(t, one, one.Key, "POST", "/v1/chat/completions", sampleBody(t, one.Curl))
	if status != 200 || !strings.HasPrefix(answer, "data: ") || !strings.HasSuffix(answer, "data: [DONE]\n\n") {
		t.Errorf("the printed request: status %d, %.300s", status, answer)
	}
	if out, err := runCommand(t, "connector", "list", "--address", one.Admin); err != nil ||
		!strings.Contains(out, "online") {
		t.Errorf("connector list: %v, %s", err, out)
	}
	checkUpConsole(t, one)
	// The connector keeps its tunnel for the grace period. The next run creates another token.
	if out, err := runCommand(t, "connector", "rotate", "local", "--grace", "1h", "--address", one.Admin); err != nil ||
		!strings.Contains(out, "has a new tunnel token") {
		t.Errorf("connector rotate: %v, %s", err, out)
	}
	first.Stop()
	if conn, err := net.Dial("tcp", strings.TrimPrefix(one.URL, "http://")); err == nil {
		conn.Close()
		t.Error("the gateway still listens after its end")
	}
	for line := range strings.Lines(messages.String()) {
		if !lateTunnel.MatchString(line) {
			t.Errorf("the first run complained: %s", line)
		}
	}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"real-one"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"id":"x","object":"chat.completion","created":1,"model":"real-one",`+
			`"choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}`)
	}))
	defer server.Close()
	checkSecondRun(t, one, server.URL)
}

// checkUpConsole checks the console of a run, and creates its first user.
func checkUpConsole(t *testing.T, ready *up.Ready) {
	t.Helper()
	page, secret, ok := strings.Cut(ready.Console, "#")
	if !ok || page != ready.URL+"/console/setup" || len(secret) != 43 || !ready.Setup {
		t.Errorf("the console is at %q", ready.Console)
	}
	if status, answer := ask(t, ready, "", "GET", "/console/setup", ""); status != 200 ||
		!strings.Contains(answer, "<html") {
		t.Errorf("/console/setup: status %d, %.300s", status, answer)
	}
	if status, answer := ask(t, ready, "", "GET", discoveryPath, ""); status != 200 ||
		!strings.Contains(answer, `"console":"`+ready.URL+`/console/"`) {
		t.Errorf("%s: status %d, %s", discoveryPath, status, answer)
	}
	app, err := runningApp()
	must(t, err)
	var recent []activity.Request
	wait.Until(t, "the request is recorded", func() bool {
		recent = app.store.Opened().Activity.Recent(store.DefaultAccount)
		return len(recent) == 1
	})
	r := recent[0]
	if r.Status != 200 || !r.Streamed || r.Deployment != scripted.ModelID || r.KeyName != "up" ||
		r.Operation != "chat/completions" ||
		r.InputTokens == 0 || r.OutputTokens == 0 || r.FirstTokenMillis <= 0 || r.FirstTokenMillis > r.DurationMillis {
		t.Errorf("recorded %+v", r)
	}
	must(t, errOf(app.store.Opened().Store.CreateUser(t.Context(), store.DefaultAccount, "anna", "$argon2id$none",
		store.RoleAdmin)))
}

// checkSecondRun runs again with a model server: the key stays, and the scripted model is
// removed.
func checkSecondRun(t *testing.T, one *up.Ready, base string) {
	t.Helper()
	second, _ := newUp(base)
	defer second.Stop()
	two, err := second.Start(t.Context())
	must(t, err)
	if two.Scripted || two.ModelServer != base {
		t.Errorf("second run: %+v", two)
	}
	if two.Console != two.URL+"/console/" || two.Setup {
		t.Errorf("with a user the console is at %q", two.Console)
	}
	// In this process the first run's socket still answers, so that it is not free.
	if notes := strings.Join(two.Notes, "\n"); !strings.Contains(notes,
		"every program on this machine can manage the gateway") {
		t.Errorf("notes %q", notes)
	}
	if status, page := ask(t, two, "", "GET", "/", ""); status != 200 || !strings.Contains(page, "<h1>Sign in</h1>") {
		t.Errorf("/ does not lead to the console: status %d, %s", status, page)
	}
	if status, text := ask(t, two, two.Key, "POST", "/chat/completions", "{}"); status != 404 ||
		!strings.Contains(text, "/v1") {
		t.Errorf("a path where nothing is: status %d, %s", status, text)
	}
	if two.Key != one.Key {
		t.Error("the second run has another key")
	}
	if status, answer := ask(t, two, two.Key, "GET", "/v1/models", ""); status != 200 ||
		!strings.Contains(answer, "real-one") || strings.Contains(answer, scripted.ModelID) {
		t.Errorf("models: status %d, %s", status, answer)
	}
	status, answer := ask(t, two, two.Key, "POST", "/v1/chat/completions",
		`{"model":"real-one","messages":[{"role":"user","content":"x"}]}`)
	if status != 200 || !strings.Contains(answer, "hello") {
		t.Errorf("completion: status %d, %s", status, answer)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as Ctrl-C does
	if err := second.Wait(ctx); err != nil {
		t.Errorf("interrupted: %v", err)
	}
}

// sampleBody returns the JSON in the printed curl line.
func sampleBody(t *testing.T, curl string) string {
	t.Helper()
	_, rest, ok := strings.Cut(curl, "-d '")
	body, _, closed := strings.Cut(rest, "'")
	if !ok || !closed || !json.Valid([]byte(body)) {
		t.Fatalf("the curl line has no JSON body: %s", curl)
	}
	return body
}

// runCommand runs `caddy gateway args…`, as Caddy's command line does.
func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root, gateway := &cobra.Command{Use: "caddy"}, &cobra.Command{Use: "gateway"}
	caddycmd.Commands()["gateway"].CobraFunc(gateway)
	root.AddCommand(gateway)
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(append([]string{"gateway"}, args...))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// closedServer returns a base URL where nothing listens.
func closedServer(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	return server.URL
}
