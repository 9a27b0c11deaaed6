package gateway

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/events"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/memory"
	"github.com/postern-dev/postern/tests/rig/wait"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A request may outlive its configuration, and with it the store. It must not
// open the file again: nothing would close it, and the next configuration could not
// open it.
func TestStoreStaysClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.db")
	handle := NewStore(StoreConfig{Path: path}, slog.New(slog.DiscardHandler), Counters{})
	before, err := handle.Get(new(Gateway))
	must(t, err)
	must(t, handle.Destruct())

	after, err := handle.Get(new(Gateway))
	if err != nil || after != before {
		t.Errorf("after Destruct: %p, %v; want the closed store %p, for its last view", after, err, before)
	}
	if _, ok := after.Store.Account(store.DefaultAccount); !ok {
		t.Error("the closed store has lost its view")
	}
	next := NewStore(StoreConfig{Path: path}, slog.New(slog.DiscardHandler), Counters{})
	if _, err := next.Get(new(Gateway)); err != nil {
		t.Fatalf("the next configuration: %v", err)
	}
	must(t, next.Destruct())
}

func TestStoreNeverOpened(t *testing.T) {
	handle := NewStore(StoreConfig{Path: filepath.Join(t.TempDir(), "gateway.db")}, slog.New(slog.DiscardHandler),
		Counters{})
	must(t, handle.Destruct())
	if _, err := handle.Get(new(Gateway)); !errors.Is(err, errStoreClosed) {
		t.Errorf("get = %v, want errStoreClosed", err)
	}
}

// The rules of signing in are those of the configuration: from the first request on, which may come before its Start,
// and after a reload and a rollback.
func TestSignInPolicy(t *testing.T) {
	handle := NewStore(StoreConfig{Path: filepath.Join(t.TempDir(), "gateway.db")}, slog.New(slog.DiscardHandler),
		Counters{})
	defer handle.Destruct()
	configuration := func(issuer string) *Gateway {
		return &Gateway{
			Store: handle, Listener: new(Listener),
			Configuration: Configuration{
				Listen: "127.0.0.1:0", MaxMemory: MinMaxMemory, SwapAfter: time.Second,
				Logger: slog.New(slog.DiscardHandler), SignIn: store.SignInPolicy{Issuers: []string{issuer}},
			},
		}
	}
	before, after := configuration("https://before"), configuration("https://after")
	expect := func(when string, g *Gateway) {
		t.Helper()
		if got := handle.Opened().Store.SignInPolicy().Issuers[0]; got != g.SignIn.Issuers[0] {
			t.Errorf("%s: %s", when, got)
		}
	}
	_, err := before.Backend()
	must(t, err)
	expect("before Start", before)
	must(t, before.Start(t.Context()))
	must(t, after.Start(t.Context()))
	expect("reloaded", after)
	after.Stop()
	expect("rolled back", before)
	before.Stop()
	_ = before.Listener.Destruct()
	_ = after.Listener.Destruct()
}

// Without a memory limit, the default of max_memory is half as large.
func TestDefaultMaxMemory(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	without := DefaultMaxMemory()
	debug.SetMemoryLimit(memory.Available()) // which is all memory
	if with := DefaultMaxMemory(); without != max(with/2, MinMaxMemory) {
		t.Errorf("%d bytes without a limit, %d with one", without, with)
	}
}

// What the answers of model servers show becomes events. Without a configuration no route is known.
func TestObservedEvents(t *testing.T) {
	handle := NewStore(StoreConfig{Path: filepath.Join(t.TempDir(), "gateway.db")}, slog.New(slog.DiscardHandler),
		Counters{})
	services, err := handle.Get(new(Gateway))
	must(t, err)
	defer func() { _ = handle.Destruct() }()
	emitted := make(emitter, 1)
	services.Events.Push(emitted)
	services.Observed.Changed(store.DefaultAccount, "m", "con_1", health.Finding{State: health.Hanging})
	if e := wait.For(t, emitted, "an event"); e.Name != "model_hanging" || e.Data["connector_id"] != "con_1" {
		t.Errorf("event %+v", e)
	}
	if _, ok := services.Observed.Route("con_1", tunnel.Target{Name: "m"}); ok {
		t.Error("a route of a deployment that does not exist")
	}
}

// emitter receives events.
type emitter chan events.Event

// Emit implements events.Emitter.
func (e emitter) Emit(event events.Event) { e <- event }

// What outlives configurations writes to the log of the newest one, with its own attributes, and to the first without.
func TestCurrentLog(t *testing.T) {
	var logs [3]bytes.Buffer
	logger := func(i int) *slog.Logger { return slog.New(slog.NewTextHandler(&logs[i], nil)) }
	handle := NewStore(StoreConfig{}, logger(0), Counters{})
	log := handle.logger.With("account", "a").WithGroup("request").With("model", "m")
	one, two := &Gateway{}, &Gateway{}
	one.Logger, two.Logger = logger(1), logger(2)
	for _, step := range []struct {
		reload func()
		into   int
	}{
		{func() {}, 0},
		{func() { handle.configurations.Push(one) }, 1},
		{func() { handle.configurations.Push(two) }, 2},
		{func() { handle.configurations.Remove(two) }, 1}, // the reload has failed
		{func() { handle.configurations.Remove(one) }, 0},
	} {
		step.reload()
		log.Warn("it failed", "n", 1)
		for i := range logs {
			line := logs[i].String()
			if logs[i].Reset(); (line != "") != (i == step.into) ||
				line != "" && !strings.Contains(line, `account=a request.model=m request.n=1`) {
				t.Errorf("in log %d, not %d: %s", i, step.into, line)
			}
		}
	}
}
