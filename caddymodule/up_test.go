package caddymodule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/postern-dev/postern/caddymodule/scripted"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/agent"
)

// newUp is a run on ports of its own that searches at bases only.
func newUp(connect string, bases ...string) (*up, *bytes.Buffer) {
	messages := new(bytes.Buffer)
	return &up{connect: connect, listen: "localhost:0", search: bases, messages: messages, ready: upReady{program: "caddy"}}, messages
}

// ownDirectories keeps the run's database out of the user's directories.
func ownDirectories(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
}

// ask sends a request to the running gateway.
func ask(t *testing.T, ready *upReady, key, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, ready.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("reading the answer: %v", err)
	}
	return resp.StatusCode, string(answer)
}

// Two runs on the same database: the first finds no model server, the second
// is given one.
func TestUpRuns(t *testing.T) {
	ownDirectories(t)
	first, messages := newUp("", closedServer(t))
	defer first.stop()
	one, err := first.start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !one.Scripted || len(one.Models) != 1 || one.Models[0] != scripted.ModelID {
		t.Errorf("first run: %+v", one)
	}
	status, answer := ask(t, one, one.Key, "POST", "/v1/chat/completions", sampleBody(t, one.Curl))
	if status != 200 || !strings.HasPrefix(answer, "data: ") || !strings.HasSuffix(answer, "data: [DONE]\n\n") {
		t.Errorf("the printed request: status %d, %.300s", status, answer)
	}
	if ran := runCommand(t, "connector", "list", "--address", one.Admin); ran.exit != 0 || !strings.Contains(ran.out, "online") {
		t.Errorf("connector list: exit %d, %s%s", ran.exit, ran.out, ran.err)
	}
	checkUpConsole(t, one)
	// The next run comes with the token that this one has kept.
	if ran := runCommand(t, "connector", "rotate", upName, "--yes", "--address", one.Admin); ran.exit != 0 || !strings.Contains(ran.out, "has a new tunnel token") {
		t.Errorf("connector rotate: exit %d, %s%s", ran.exit, ran.out, ran.err)
	}
	first.stop()
	if conn, err := net.Dial("tcp", strings.TrimPrefix(one.URL, "http://")); err == nil {
		conn.Close()
		t.Error("the gateway still listens after its end")
	}
	if messages.Len() != 0 {
		t.Errorf("the first run complained: %s", messages)
	}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"real-one"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"id":"x","object":"chat.completion","created":1,"model":"real-one","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}`)
	}))
	defer server.Close()
	checkSecondRun(t, one, server.URL)
}

// checkUpConsole looks at what a run serves beside the API, and makes its first
// user.
func checkUpConsole(t *testing.T, ready *upReady) {
	t.Helper()
	page, secret, ok := strings.Cut(ready.Console, "#")
	if !ok || page != ready.URL+"/console/setup" || len(secret) != 43 || !ready.setup {
		t.Errorf("the console is at %q", ready.Console)
	}
	if status, answer := ask(t, ready, "", "GET", "/console/setup", ""); status != 200 || !strings.Contains(answer, "<html") {
		t.Errorf("/console/setup: status %d, %.300s", status, answer)
	}
	if status, answer := ask(t, ready, "", "GET", discoveryPath, ""); status != 200 || !strings.Contains(answer, `"console":"`+ready.URL+`/console/"`) {
		t.Errorf("%s: status %d, %s", discoveryPath, status, answer)
	}
	app, err := runningApp()
	if err != nil {
		t.Fatal(err)
	}
	recent := app.store.val.open.Load().activity.Recent(store.DefaultAccount)
	if len(recent) != 1 {
		t.Fatalf("%d requests are recorded, want the one: %+v", len(recent), recent)
	}
	r := recent[0]
	if r.Status != 200 || !r.Streamed || r.Deployment != scripted.ModelID || r.KeyName != upKeyName || r.Operation != "chat/completions" ||
		r.InputTokens == 0 || r.OutputTokens == 0 || r.FirstToken <= 0 || r.FirstToken > r.Duration {
		t.Errorf("recorded %+v", r)
	}
	if _, err := app.Store().CreateUser(t.Context(), store.DefaultAccount, "anna", "$argon2id$none"); err != nil {
		t.Fatal(err)
	}
}

// checkSecondRun runs again with a model server: the old key and the scripted
// model are gone.
func checkSecondRun(t *testing.T, one *upReady, base string) {
	t.Helper()
	second, _ := newUp(base)
	defer second.stop()
	two, err := second.start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if two.Scripted || two.ModelServer != base {
		t.Errorf("second run: %+v", two)
	}
	if two.Console != two.URL+"/console/" || two.setup {
		t.Errorf("with a user the console is at %q", two.Console)
	}
	// In this process the first run's socket still answers, so that it is not free.
	wantNotes(t, two.Notes, "the key of the last run is removed", "every program on this machine can manage the gateway")
	if status, page := ask(t, two, "", "GET", "/", ""); status != 200 || !strings.Contains(page, "<h1>Sign in</h1>") {
		t.Errorf("/ does not lead to the console: status %d, %s", status, page)
	}
	if status, text := ask(t, two, two.Key, "POST", "/chat/completions", "{}"); status != 404 || !strings.Contains(text, "/v1") {
		t.Errorf("a path where nothing is: status %d, %s", status, text)
	}
	if status, _ := ask(t, two, one.Key, "GET", "/v1/models", ""); status != 401 {
		t.Errorf("the key of the first run: status %d, want 401", status)
	}
	if status, answer := ask(t, two, two.Key, "GET", "/v1/models", ""); status != 200 || !strings.Contains(answer, "real-one") || strings.Contains(answer, scripted.ModelID) {
		t.Errorf("models: status %d, %s", status, answer)
	}
	status, answer := ask(t, two, two.Key, "POST", "/v1/chat/completions", `{"model":"real-one","messages":[{"role":"user","content":"x"}]}`)
	if status != 200 || !strings.Contains(answer, "hello") {
		t.Errorf("completion: status %d, %s", status, answer)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as Ctrl-C does
	if err := second.wait(ctx); err != nil {
		t.Errorf("interrupted: %v", err)
	}
}

// sampleBody is the JSON in the printed curl line.
func sampleBody(t *testing.T, curl string) string {
	t.Helper()
	_, rest, ok := strings.Cut(curl, "-d '")
	body, _, closed := strings.Cut(rest, "'")
	if !ok || !closed || !json.Valid([]byte(body)) {
		t.Fatalf("the curl line has no JSON body: %s", curl)
	}
	return body
}

func TestUpModelServerErrors(t *testing.T) {
	ownDirectories(t)
	tests := []struct{ name, connect, want string }{
		{"nothing there", closedServer(t), "no model server answers at"},
		{"no models", serveModels(t, 200, `{"data":[]}`), "has no models"},
		{"a gateway", serveModels(t, 401, `{}`), "asks for an API key"},
		{"a web page", serveModels(t, 200, `<html>`), "not usable as a model server"},
		{"not a URL", "http://a b", "is not the base URL of a model server"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u, _ := newUp(tt.connect)
			defer u.stop()
			if _, err := u.start(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
			if u.running {
				t.Error("the gateway was started")
			}
		})
	}
}

// A taken port is answered with the command line that works.
func TestUpPortTaken(t *testing.T) {
	model := serveModels(t, 200, `{"data":[{"id":"m"}]}`)
	other := serveModels(t, 404, ``)
	for _, tt := range []struct{ name, at, connect, want string }{
		{"by a model server", model, "", "caddy gateway up --listen localhost:8081 --connect http://localhost:" + portOf(model)},
		{"by something else", other, "", "caddy gateway up --listen localhost:8081"},
		{"with a model server given", other, model, "caddy gateway up --listen localhost:8081 --connect " + model},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u, _ := newUp(tt.connect)
			u.listen = "localhost:" + portOf(tt.at)
			_, err := u.start(t.Context())
			if !errors.Is(err, errPortTaken) || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("error = %v\nwant it to end in %q", err, tt.want)
			}
		})
	}
}

func portOf(base string) string {
	return base[strings.LastIndexByte(base, ':')+1:]
}

// The connector's end by itself ends the run with an error.
func TestUpConnectorEnds(t *testing.T) {
	for _, end := range []error{errors.New("denied"), nil} {
		u := &up{agentDone: make(chan error, 1)}
		u.agentDone <- end
		if err := u.wait(t.Context()); err == nil || !strings.Contains(err.Error(), "running the connector") {
			t.Errorf("error = %v", err)
		}
	}
}

// A connector that somebody has removed leaves the gateway to its others.
func TestUpConnectorRemoved(t *testing.T) {
	var messages strings.Builder
	u := &up{agentDone: make(chan error, 1), messages: &messages}
	u.agentDone <- &agent.FatalError{Reason: "the gateway closed the tunnel: removed", Fix: "create"}
	ctx, stop := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() { waited <- u.wait(ctx) }()
	select {
	case err := <-waited:
		t.Errorf("it ended with %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	stop()
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if got := messages.String(); !strings.Contains(got, "Warning: this process has no connector any more: the gateway closed the tunnel: removed.") {
		t.Errorf("it says %q", got)
	}
}

// Without a gateway in the running configuration the admin endpoint says what
// to do, in Caddy's own error type.
func TestAdminWithoutGateway(t *testing.T) {
	routes := new(adminAPI).Routes()
	if len(routes) != 1 || routes[0].Pattern != "/model_gateway/" {
		t.Fatalf("routes = %+v", routes)
	}
	err := routes[0].Handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/model_gateway/status", nil))
	var api caddy.APIError
	if !errors.As(err, &api) || api.HTTPStatus != http.StatusServiceUnavailable || !strings.Contains(api.Error(), "caddy reload") {
		t.Errorf("error = %v", err)
	}
}

// While the process exits, nobody is told to add what is there.
func TestAdminWhileExiting(t *testing.T) {
	for _, reason := range []error{caddy.ErrNotConfigured, errors.New("the database is closed")} {
		var api caddy.APIError
		err := unavailable(reason, true)
		if !errors.As(err, &api) || api.HTTPStatus != http.StatusServiceUnavailable || !strings.Contains(api.Error(), "shutting down") {
			t.Errorf("error = %v", err)
		}
	}
}
