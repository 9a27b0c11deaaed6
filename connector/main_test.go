package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/service"
	"github.com/postern-dev/postern/connector/version"
)

// patience bounds waits for events that must come, on the slowest machine.
const patience = time.Minute

// testToken is a well-formed token that no gateway accepts. Its address is closed.
var testToken = link.Token{
	Server:    "127.0.0.1:1",
	Pin:       "n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg",
	Connector: "con_aaaaaaaaaaaaaaaaaaaaaaaaaa",
	Secret:    "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3I",
}

// execute runs a command line in an environment. The first signal comes when stderr contains
// until, unless that is empty, or after a minute.
func execute(t *testing.T, until string, env map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	logger := slog.Default()
	t.Cleanup(func() { slog.SetDefault(logger) })
	runtimeDir, err := os.MkdirTemp("", "run") // a short path, for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(runtimeDir) })
	var out, errors output
	code = run(t.Context(), args, system{
		stdout: &out, stderr: &errors,
		getenv: func(name string) string {
			if name == "XDG_RUNTIME_DIR" && env[name] == "" {
				return runtimeDir
			}
			return env[name]
		},
		signals: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, signal := context.WithTimeout(ctx, patience)
			if until != "" {
				errors.notify(until, signal)
			}
			return ctx, signal
		},
	})
	return code, out.String(), errors.String()
}

func TestUsage(t *testing.T) {
	tests := []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // expected parts
	}{
		{"nothing", []string{}, exitOK, "Available Commands:", ""},
		{
			"help",
			[]string{"--help"},
			exitOK,
			"Exit codes: 0 success, 1 failure, 2 invalid flags or configuration, 3 not paired,\n" +
				"4 already paired, 5 no service, 78 rejected by the gateway.",
			"",
		},
		{"help of run", []string{"run", "--help"}, exitOK, "connector run --config connector.json", ""},
		{"version", []string{"--version"}, exitOK, "connector " + version.Number() + "\ncommit ", ""},
		{
			"unknown command",
			[]string{"rum"},
			exitUsage, "",
			"Error: unknown command \"rum\" for \"connector\"\n\nDid you mean this?\n  run\n",
		},
		{
			"unknown flag",
			[]string{"run", "--conf", "x"},
			exitUsage, "",
			"Error: unknown flag: --conf; see `connector run --help`\n",
		},
		{
			"unknown command of a group",
			[]string{"service", "insall"},
			exitUsage, "",
			"Error: unknown command \"insall\" for \"connector service\"; see `connector service --help`\n",
		},
		{
			"an argument too many",
			[]string{"run", "connector.json"},
			exitUsage, "",
			`Error: unknown command "connector.json" for "connector run"`,
		},
		{
			"unknown level",
			[]string{"run", "--log-level", "loud"},
			exitUsage, "",
			"Error: --log-level: unknown level \"loud\"; use debug, info, warn or error\n",
		},
		{
			"negative time",
			[]string{"run", "--drain-timeout", "-1s"},
			exitUsage, "",
			"Error: --drain-timeout: -1s is negative; use something like 30s, or 0s to stop at once\n",
		},
		{
			"unknown format",
			[]string{"run", "--log-format", "xml"},
			exitUsage, "",
			"Error: --log-format: unknown format \"xml\"; use auto, text or json\n",
		},
		{
			"no configuration",
			[]string{"run"},
			exitUsage, "",
			"Error: tunnel_token: missing; pair this machine with `connector pair SERVER_URL CODE --upstream URL`, or create " +
				"a token on the gateway's machine with `caddy gateway connector create --name NAME` and paste it here (or set " +
				"TUNNEL_TOKEN)\n" +
				"No --config FILE was given either; see `connector run --help`\n",
		},
		{
			"no home",
			[]string{"status"},
			exitRuntime, "",
			"Error: no connector is running, and this machine is not paired; pair it with",
		},
		{
			"no file",
			[]string{"run", "--config", "/none"},
			exitUsage, "",
			"Error: reading the configuration: open /none: no such file or directory; pair this machine with `connector " +
				"pair`, or correct the path\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := execute(t, "", nil, tt.args...)
			if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) ||
				(stderr == "") != (tt.stderr == "") {
				t.Errorf("code %d\nstdout %s\nstderr %s", code, stdout, stderr)
			}
		})
	}
}

// An unpaired connector is not restarted, as only a person can help.
func TestUnitLeavesItEnded(t *testing.T) {
	want := fmt.Sprintf("\nRestartPreventExitStatus=%d %d\n", exitUsage, exitFatal)
	for _, user := range []bool{true, false} {
		if unit := (service.Plan{User: user}).Unit(); !strings.Contains(unit, want) {
			t.Errorf("user %t: %s", user, unit)
		}
	}
}

// The connector does not know the name of the gateway's program. Its hints use the name in
// the manual, and say on which machine to run it.
func TestHintsOfTheGateway(t *testing.T) {
	found := 0
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		text := strings.Join(strings.FieldsFunc(string(source),
			func(r rune) bool { return strings.ContainsRune(" \t\n`+\"\\", r) }), " ")
		hints := strings.Count(text, "caddy gateway ")
		found += hints
		if strings.Contains(text, "postern gateway") ||
			strings.Count(text, "on the gateway's machine with caddy gateway ") != hints {
			t.Errorf("%s: a hint is not like \"on the gateway's machine with `caddy gateway …`\"", path)
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d hints, %v", found, err)
	}
}

// TestRun runs a connector whose gateway cannot be reached, and stops it.
func TestRun(t *testing.T) {
	upstream := httptest.NewServer(http.NotFoundHandler())
	defer upstream.Close()
	path := filepath.Join(t.TempDir(), "connector.json")
	config := `{"tunnel_token": "` + testToken.Encode() + `", "upstream": "` + upstream.URL + `"}`
	if err := os.WriteFile(path, []byte(config), 0o604); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := execute(t, `"msg":"connecting"`, nil, "run", "--config", path)
	if code != exitOK || stdout != "" {
		t.Errorf("code %d, stdout %q", code, stdout)
	}
	var messages []string
	for decoder := json.NewDecoder(strings.NewReader(stderr)); ; {
		var line struct{ Level, Msg string }
		if err := decoder.Decode(&line); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("the log is not JSON: %v\n%s", err, stderr)
		}
		messages = append(messages, line.Level+" "+line.Msg)
	}
	want := []string{
		"WARN " + path + " contains a tunnel token and is readable by every user of this machine; run: chmod 600 " + path,
		"INFO connecting",
		"INFO stopping; another signal stops at once",
		"INFO stopped",
	}
	if got := strings.Join(messages, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestRunFromTheEnvironment(t *testing.T) {
	env := map[string]string{"TUNNEL_TOKEN": testToken.Encode(), "UPSTREAM": "http://localhost:11434"}
	code, _, stderr := execute(t, "msg=connecting", env, "run", "--log-format", "text", "--log-level", "info")
	if code != exitOK || !strings.Contains(stderr, `level=INFO msg=connecting server=127.0.0.1:1`) {
		t.Errorf("code %d, stderr %s", code, stderr)
	}
	if strings.Contains(stderr, testToken.Secret) || strings.Contains(stderr, testToken.Encode()) {
		t.Error("the log contains the token")
	}
}

func TestWrongKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "connector.json")
	config := `{"tunnel_token": "` + testToken.Encode() +
		`", "upstream": "http://localhost:11434", "api_key_file": "none"}`
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := execute(t, "", nil, "run", "--config", path)
	if want := "Error: api_key_file: open " + filepath.Join(filepath.Dir(path), "none") +
		": no such file or directory\n"; code != exitUsage || stderr != want {
		t.Errorf("code %d, stderr %s", code, stderr)
	}
}
