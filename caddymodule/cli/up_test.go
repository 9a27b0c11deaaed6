package cli

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/postern-dev/postern/caddymodule/cli/up"
)

// Commands that go to a running `up`, although another Caddy runs, name both.
func TestTwoGateways(t *testing.T) {
	listenAsUp(t)
	t.Setenv("CADDY_ADMIN", "")
	usual := caddy.DefaultAdminListen
	t.Cleanup(func() { caddy.DefaultAdminListen = usual })
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	caddy.DefaultAdminListen = other.Addr().String()
	const note = "This is the gateway of `caddy gateway up`. For the other one, add --address "
	if got := runCommand(t, "status"); strings.Count(got.err, note+caddy.DefaultAdminListen+".\n") != 1 {
		t.Errorf("exit code %d: %s", got.exit, got.err)
	}
	_ = other.Close()
	if got := runCommand(t, "status"); got.exit != 0 || got.err != "" {
		t.Errorf("exit code %d: %s", got.exit, got.err)
	}
}

// A second run prints the addresses of the first one, and starts nothing.
func TestUpTwice(t *testing.T) {
	listenAsUp(t)
	got := runCommand(t, "up", "--listen", "localhost:0")
	if got.exit != exitFailed {
		t.Errorf("exit code %d", got.exit)
	}
	compareGolden(t, "up_twice", got.out+got.err)
}

// listenAsUp answers at the socket of `up`.
func listenAsUp(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there is no socket")
	}
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	socket := filepath.Join(caddy.AppDataDir(), "model_gateway", "up.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: &fakeAdmin{answers: ok("GET /model_gateway/status",
		`{"url":"http://localhost:8080"}`)}}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(ln) }() // ends with Close
}

func TestUpPrint(t *testing.T) {
	many := make([]string, 14)
	for i := range many {
		many[i] = "m" + string(rune('a'+i))
	}
	for name, ready := range map[string]*up.Ready{
		"up_found": {
			URL: "http://localhost:8080", ModelServer: "http://localhost:11434",
			Models: []string{"nomic-embed-text", "llama3.2:3b"},
			Key:    "sk-svc-EXAMPLE", Console: "http://localhost:8080/console/setup#EXAMPLE", Setup: true,
			Admin: "localhost:2019", Program: "caddy",
			Notes: []string{"the key of the last run was revoked; the key above is new"},
		},
		"up_scripted": {
			URL: "http://localhost:8081", ModelServer: "http://127.0.0.1:40000", Scripted: true, Models: []string{"scripted"},
			Key: "sk-svc-EXAMPLE", Console: "http://localhost:8081/console/", Admin: "localhost:40001", Program: "bin/caddy",
		},
		"up_many_models": {
			URL: "http://localhost:8080", ModelServer: "http://localhost:11434", Models: many,
			Key: "sk-svc-EXAMPLE", Console: "http://localhost:8080/console/", Admin: "localhost:2019", Program: "caddy",
		},
	} {
		var out strings.Builder
		ready.Curl = "curl …"
		printReady(&out, ready)
		compareGolden(t, name, out.String())
	}
}
