package caddymodule

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/freeport"
	"github.com/postern-dev/postern/tests/rig/wait"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errOf returns the last result of a call, its error.
func errOf(results ...any) error {
	err, _ := results[len(results)-1].(error)
	return err
}

// freeUDP returns a loopback UDP address without a listener.
func freeUDP(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Addr()
	must(t, err)
	return addr
}

// gatewayFile is a Caddyfile of a gateway with a console, whose tokens lead to
// public.
func gatewayFile(listen, public, database string) string {
	return fmt.Sprintf("{\n model_gateway {\n  listen %s\n  public %s\n  storage bolt %s\n }\n}\n"+
		"http://localhost:8080 {\n model_gateway\n model_console\n}", listen, public, database)
}

// start starts app as Caddy would, and stops it when the test ends.
func start(t *testing.T, app *App) {
	t.Helper()
	must(t, app.Start())
	t.Cleanup(func() { _ = app.Stop() })
}

// Tokens contain the address of the current configuration, whichever stops first.
func TestTokensFollowTheConfiguration(t *testing.T) {
	listen, database := freeUDP(t), filepath.Join(t.TempDir(), "gateway.db")
	old := provision(t, gatewayFile(listen, "old.example.com:7443", database))
	next := provision(t, gatewayFile(listen, "new.example.com:7443", database))
	old.store.Messages = io.Discard
	force := old.store
	server := func() string {
		text, err := force.Token("con_06b3kz9v6dfx7fbv7wq7m5r2qm", strings.Repeat("s", 43))
		if err != nil {
			return err.Error()
		}
		token, err := link.ParseToken(text)
		must(t, err)
		if token.Pin == "" || token.Pin != force.Pin() || token.Connector != "con_06b3kz9v6dfx7fbv7wq7m5r2qm" {
			t.Errorf("token with pin %q of %q, want the pin %q", token.Pin, token.Connector, force.Pin())
		}
		return token.Server
	}
	expect := func(when, want string) {
		t.Helper()
		if got := server(); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	expect("before the start", gateway.ErrNotListening.Error())
	if pin := force.Pin(); pin != "" {
		t.Errorf("before the start the pin is %q", pin)
	}
	start(t, old)
	expect("started", "old.example.com:7443")
	start(t, next)
	expect("reloaded", "new.example.com:7443")
	_ = next.Stop()
	expect("rolled back", "old.example.com:7443")
	start(t, next)
	_ = old.Stop()
	expect("reloaded again", "new.example.com:7443")
	_ = next.Stop()
	expect("stopped", gateway.ErrNotListening.Error())
}

// A site without a name gives no address to dial.
func TestNoTokenWithoutAddress(t *testing.T) {
	app := provision(t, "{\n model_gateway {\n  listen "+freeUDP(t)+"\n }\n}\n:8080 {\n model_gateway\n}")
	start(t, app)
	if _, err := app.store.Token("con_1", "s"); err == nil ||
		!strings.Contains(err.Error(), "`public gw.example.com:7443`") {
		t.Errorf("error = %v", err)
	}
}

// atOnce makes a store welcome the first user before its start returns.
func atOnce(s *gateway.Store) { s.Later = func(_ context.Context, f func()) { f() } }

// Caddy logs its start before the first user is welcomed. A configuration that ends before does not welcome.
func TestWelcomeComesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := gateway.NewStore(gateway.StoreConfig{}, slog.New(slog.DiscardHandler), gateway.Counters{})
		var welcomed atomic.Int32
		ended, end := context.WithCancel(t.Context())
		s.Later(ended, func() { welcomed.Add(100) })
		end()
		s.Later(t.Context(), func() { welcomed.Add(1) })
		if time.Sleep(999 * time.Millisecond); welcomed.Load() != 0 {
			t.Error("too early")
		}
		if time.Sleep(2 * time.Millisecond); welcomed.Load() != 1 {
			t.Errorf("welcomed %d", welcomed.Load())
		}
	})
}

// The first start prints how to create the first user, once per process.
func TestWelcome(t *testing.T) {
	listen, database := freeUDP(t), filepath.Join(t.TempDir(), "gateway.db")
	var output bytes.Buffer
	first := provision(t, gatewayFile(listen, "localhost:7443", database))
	first.store.Messages, first.store.Terminal = &output, true
	atOnce(first.store)
	start(t, first)
	_, secret, ok := strings.Cut(output.String(), "  http://localhost:8080/console/setup#")
	if !ok || strings.Count(output.String(), "#") != 1 || len(strings.Fields(secret)[0]) != 43 {
		t.Fatalf("the first start printed %q", output.String())
	}
	if _, err := first.store.Opened().Store.FindLink(strings.Fields(secret)[0]); err != nil {
		t.Errorf("the link is not valid: %v", err)
	}
	output.Reset()
	start(t, provision(t, gatewayFile(listen, "localhost:7443", database)))
	if output.Len() > 0 {
		t.Errorf("a reload printed %q", output.String())
	}
}

// Where others may read the output, the first start names the command instead of the
// link.
func TestWelcomeWithoutTerminal(t *testing.T) {
	var output bytes.Buffer
	app := provision(t, gatewayFile(freeUDP(t), "localhost:7443", filepath.Join(t.TempDir(), "gateway.db")))
	app.store.Messages, app.store.Terminal = &output, false
	atOnce(app.store)
	start(t, app)
	if !strings.Contains(output.String(), " gateway setup-link` prints a link") || strings.Contains(output.String(), "#") {
		t.Errorf("the first start printed %q", output.String())
	}
}

func TestNoWelcome(t *testing.T) {
	without := strings.Replace(gatewayFile(freeUDP(t), "localhost:7443", filepath.Join(t.TempDir(), "a.db")),
		"\n model_console", "", 1)
	with := gatewayFile(freeUDP(t), "localhost:7443", filepath.Join(t.TempDir(), "b.db"))
	for name, file := range map[string]string{"no console": without, "a user": with} {
		t.Run(name, func(t *testing.T) {
			var output bytes.Buffer
			app := provision(t, file)
			app.store.Messages = &output
			atOnce(app.store)
			open, err := app.store.Get(app.gateway)
			must(t, err)
			if name == "a user" {
				must(t, errOf(open.Store.CreateUser(t.Context(), "default", "anna", "$argon2id$none", store.RoleAdmin)))
			}
			start(t, app)
			if output.Len() > 0 {
				t.Errorf("it printed %q", output.String())
			}
		})
	}
}

// The memory budget is that of the current configuration.
func TestMaxMemory(t *testing.T) {
	listen, database := freeUDP(t), filepath.Join(t.TempDir(), "gateway.db")
	file := func(size string) string {
		return strings.Replace(gatewayFile(listen, "gw.example.com:7443", database), "listen",
			"max_memory "+size+"\n listen", 1)
	}
	first, second := provision(t, file("40MiB")), provision(t, file("50MiB"))
	first.store.Messages = io.Discard
	total := func() int64 { return first.store.Opened().Memory.Stats().Total }
	for _, step := range []struct {
		do   func() error
		want int64
	}{{first.Start, 40 << 20}, {second.Start, 50 << 20}, {second.Stop, 40 << 20}, {first.Stop, 40 << 20}} {
		must(t, step.do())
		if got := total(); got != step.want {
			t.Errorf("%d bytes, want %d", got, step.want)
		}
	}
	if got := provision(t, file("900TiB")).MaxMemory; got != gateway.AvailableMemory() {
		t.Errorf("more than the machine has: %d bytes of %d", got, gateway.AvailableMemory())
	}
	if _, err := tryProvision(t, file("31MiB")); err == nil || !strings.Contains(err.Error(), "max_memory") {
		t.Errorf("too small: %v", err)
	}
}

// Each configuration has its own time after which a server may swap its model.
func TestSwapAfter(t *testing.T) {
	file := func(option string) string {
		return strings.Replace(gatewayFile(freeUDP(t), "gw.example.com:7443", filepath.Join(t.TempDir(), "gateway.db")),
			"listen", option+"\n listen", 1)
	}
	for option, want := range map[string]time.Duration{
		"": 30 * time.Second, "swap_after 1s": time.Second, "swap_after 1h": time.Hour,
	} {
		if got := provision(t, file(option)).gateway.SwapAfter; got != want {
			t.Errorf("%q: %v", option, got)
		}
	}
	for _, option := range []string{"swap_after 999ms", "swap_after 0s", "swap_after 61m"} {
		if _, err := tryProvision(t, file(option)); err == nil || !strings.Contains(err.Error(), "must be 1s to 1h") {
			t.Errorf("%s: %v", option, err)
		}
	}
}

// The file of the activity is in the folder of the database.
func TestActivityFile(t *testing.T) {
	database := filepath.Join(t.TempDir(), "gateway.db")
	app := provision(t, gatewayFile(freeUDP(t), "gw.example.com:7443", database))
	app.store.Messages = io.Discard
	must(t, app.Start())
	wait.Until(t, "the file", func() bool {
		_, err := os.Stat(filepath.Join(filepath.Dir(database), "activity.db"))
		return err == nil
	})
	if err := app.Stop(); err != nil {
		t.Error(err)
	}
}
