package cli

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/postern-dev/postern/caddymodule/cli/up"
)

var update = flag.Bool("update", false, "write the golden files again")

// adminAnswer is the response of the fake admin endpoint to one request.
type adminAnswer struct {
	status int
	body   string
}

// fakeAdmin responds with answers, by "METHOD path", and records the requests.
type fakeAdmin struct {
	answers  map[string]adminAnswer
	requests bytes.Buffer
}

func (f *fakeAdmin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	line := r.Method + " " + r.RequestURI
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintln(&f.requests, strings.TrimSpace(line+" "+string(body)))
	answer, ok := f.answers[line]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(answer.status)
	_, _ = io.WriteString(w, answer.body)
}

// ranCommand is the outcome of one command line.
type ranCommand struct {
	out, err string
	exit     int
}

// runCommand runs `caddy gateway args…` at a fixed time.
func runCommand(t *testing.T, args ...string) ranCommand {
	t.Helper()
	now := func() time.Time { return time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC) }
	root, gateway := &cobra.Command{Use: "caddy", SilenceUsage: true}, &cobra.Command{}
	commands(up.Host{Console: "/console"}).build(gateway,
		environment{
			now: now, zone: time.UTC, askPassword: scriptedPassword, confirm: scriptedConfirm,
			size: func(io.Writer) (int, int) { return 0, 0 },
		})
	root.AddCommand(gateway)
	var out, errOut bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetArgs(append([]string{"gateway"}, args...))
	err := root.ExecuteContext(t.Context())
	return ranCommand{out: out.String(), err: errOut.String(), exit: exitCode(err)}
}

// scriptedPassword stands for a person at a terminal.
func scriptedPassword(cmd *cobra.Command, prompt string) (string, error) {
	fmt.Fprintln(cmd.ErrOrStderr(), prompt)
	if cmd.Flags().Arg(0) == "typo" {
		return prompt, nil
	}
	return "correct horse", nil
}

// scriptedConfirm stands for a person at a terminal, who confirms one connector and
// one device.
func scriptedConfirm(cmd *cobra.Command, question string) error {
	cmd.SetIn(strings.NewReader(map[string]string{"rack": "y\n", "pair_2": "y\n"}[cmd.Flags().Arg(0)]))
	return readConfirmation(cmd, question)
}

// exitCode returns the exit code of Caddy's main function for err. The type with codes
// other than 1 is not exported.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if v := reflect.ValueOf(err); v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		if code := v.Elem().FieldByName("ExitCode"); code.IsValid() {
			return int(code.Int())
		}
	}
	return 1
}

// TestCommandOutput runs command lines against a fake admin endpoint and
// compares the requests they make, what they print and how they exit.
func TestCommandOutput(t *testing.T) {
	for _, tt := range slices.Concat(commandTests, keyTests, pairingTests, rotateTests, tokenTests, identityTests,
		edgeTests, activityTests) {
		t.Run(tt.name, func(t *testing.T) {
			admin := &fakeAdmin{answers: tt.answers}
			server := httptest.NewServer(admin)
			defer server.Close()
			address := strings.TrimPrefix(server.URL, "http://")
			args := strings.Fields(tt.args)
			shown := "$ caddy gateway " + strings.Join(args, " ") + "\n"
			if !strings.Contains(tt.name, "help") {
				args = append(args, "--address", address)
			}
			ran := runCommand(t, args...)
			got := fmt.Sprintf("%s-- requests --\n%s-- stdout --\n%s-- stderr --\n%s-- exit %d --\n",
				shown, admin.requests.String(), ran.out, ran.err, ran.exit)
			compareGolden(t, tt.name, strings.ReplaceAll(got, address, "ADDRESS"))
		})
	}
}

// compareGolden compares got with testdata/command/name.golden.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "command", name+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	wanted, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; got:\n%s\nif this is right, run with -update", err, got)
	}
	if got != string(wanted) {
		t.Errorf("got:\n%s\nwant:\n%s\nif this is right, run with -update", got, wanted)
	}
}

// The URL of a site is not an admin endpoint.
func TestCommandWithURL(t *testing.T) {
	ran := runCommand(t, "key", "list", "--address", "https://localhost/v1")
	want := "Error: --address is Caddy's admin endpoint, such as localhost:2019, and not the URL of a site"
	if ran.exit != exitUsage || !strings.HasPrefix(ran.err, want) {
		t.Errorf("exit %d, %q", ran.exit, ran.err)
	}
}

// Without a server at the address, the error names the command to start it.
func TestCommandWithoutServer(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	address := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	for _, address := range []string{address, "unix//nonexistent/admin.sock"} {
		ran := runCommand(t, "key", "list", "--address", address)
		for _, part := range []string{
			"Error: no gateway answers at " + address, "caddy run --config Caddyfile",
			"caddy gateway up", "--address",
		} {
			if !strings.Contains(ran.err, part) {
				t.Errorf("%s: %q is not in %q", address, part, ran.err)
			}
		}
		if ran.exit != exitFailed || ran.out != "" {
			t.Errorf("%s: exit %d, stdout %q", address, ran.exit, ran.out)
		}
	}
}

// TestCommandErrorsArePrintable: errors may contain text of a model server.
func TestCommandErrorsArePrintable(t *testing.T) {
	var out strings.Builder
	cmd := &cobra.Command{}
	cmd.SetErr(&out)
	_ = fail(cmd, errors.New("it answers 500 \x1b[2J\r\nand no more"))
	if got, want := out.String(), "Error: it answers 500 [2J\nand no more\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// The admin endpoint is read from a configuration file, as by Caddy's commands.
func TestCommandConfigFlag(t *testing.T) {
	server := httptest.NewServer(&fakeAdmin{answers: map[string]adminAnswer{"GET /model_gateway/keys": {200, "[]"}}})
	defer server.Close()
	config := filepath.Join(t.TempDir(), "caddy.json")
	if err := os.WriteFile(config, []byte(`{"admin":{"listen":"`+strings.TrimPrefix(server.URL, "http://")+`"}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	// Caddy logs which file it reads, which is not of interest here.
	_, usual, buffer := caddy.BufferedLog()
	defer caddy.UnbufferDefaultLogger(usual)
	core, logged := observer.New(zap.InfoLevel)
	if ran := runCommand(t, "key", "list", "--config", config); ran.exit != 0 {
		t.Errorf("exit %d: %s", ran.exit, ran.err)
	}
	if buffer.FlushTo(zap.New(core)); logged.Len() != 0 {
		t.Errorf("logged %v", logged.All())
	}
	caddy.Log().Info("later")
	if buffer.FlushTo(zap.New(core)); logged.Len() != 1 {
		t.Errorf("later: logged %v", logged.All())
	}
	if ran := runCommand(t, "key", "list", "--config", config+".none"); ran.exit != exitUsage ||
		!strings.Contains(ran.err, "finding the admin endpoint") {
		t.Errorf("missing file: exit %d: %s", ran.exit, ran.err)
	}
}

// A password is one line of the standard input without its line end. Without a
// terminal, a prompt is an error.
func TestPasswordFromStandardInput(t *testing.T) {
	for _, tt := range []struct{ input, want, err string }{
		{"correct horse \n", "correct horse ", ""},
		{"correct horse\r\nsecond line", "correct horse", ""},
		{"no line's end", "no line's end", ""},
		{"\n", "", "holds no password"},
		{"", "", "holds no password"},
	} {
		cmd := new(cobra.Command)
		cmd.SetIn(strings.NewReader(tt.input))
		cmd.Flags().Bool("password-stdin", true, "")
		got, err := newPassword(&invocation{Command: cmd})
		if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %q, %v", tt.input, got, err)
		}
	}
}
