package observed

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

var begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// bench is a table with a clock, a deployment and its route.
type bench struct {
	*Table
	now     time.Time
	d       store.Deployment
	route   tunnel.DeploymentRoute
	changes []string
}

func newBench() *bench {
	b := &bench{
		now:   begun.Add(time.Minute),
		d:     store.Deployment{Account: "default", Name: "m", UpdatedAt: begun, Connectors: []string{"con_1"}},
		route: tunnel.DeploymentRoute{State: health.Available, Since: begun},
	}
	b.Table = New(func() time.Time { return b.now })
	b.Deployment = func(_, name string) (store.Deployment, bool) { return b.d, name == b.d.Name }
	b.Route = func(string, tunnel.Target) (tunnel.DeploymentRoute, bool) { return b.route, true }
	b.Changed = func(_, _, connector string, found health.Finding) {
		b.changes = append(b.changes, fmt.Sprint(connector, " ", found.State, " ", found.Window))
	}
	return b
}

// window returns the window in force, with the state.
func (b *bench) window() string {
	w := b.Window(&b.d, "con_1", b.route)
	return fmt.Sprint(w.Tokens, " ", w.Source, " ", b.State(&b.d, "con_1", b.route).State)
}

func (b *bench) expect(t *testing.T, what, want string) {
	t.Helper()
	if got := b.window(); got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// counted records a count.
func (b *bench) counted(n int, doubt tokens.Doubt) {
	b.Counted(tokens.NewRegistration(b.d.Account, b.d.Name, b.d.UpdatedAt), "con_1", n, doubt)
}

func TestWindowSources(t *testing.T) {
	b := newBench()
	const none = "0  available"
	b.expect(t, "nothing is known", none)
	b.counted(3000, tokens.None)
	b.expect(t, "a count", none)
	b.counted(3000, tokens.Low)
	b.expect(t, "a low count", none)
	b.counted(2050, tokens.Cut)
	b.expect(t, "cut", "0  cuts prompts")
	b.Refused(&b.d, "con_1", 4096)
	b.expect(t, "a refusal", "4096 refusal cuts prompts")
	b.Measured(&b.d, "con_1", 8192, true)
	b.expect(t, "a measurement that is newer", "8192 measured cuts prompts")
	b.Refused(&b.d, "con_1", 2048)
	b.expect(t, "a refusal that is newer", "2048 refusal available")
	b.counted(1026, tokens.Cut)
	b.expect(t, "a measurement has shown no cut", "2048 refusal available")
	b.Measured(&b.d, "con_1", 0, false)
	b.expect(t, "a measurement without a window", none)
	b.Refused(&b.d, "con_1", 2048)
	b.route.Window = 16384
	b.expect(t, "listed", "16384 listed available")
	b.d.Options = compat.Options{ContextWindow: 1000}
	b.expect(t, "the option", "1000 option available")
	if w := b.Window(&b.d, "con_2", tunnel.DeploymentRoute{}); w.Tokens != 1000 {
		t.Errorf("the option has the window %d at another connector", w.Tokens)
	}
	b.d.Options, b.route.Window, b.route.State = compat.Options{}, 0, health.ServerDown
	b.expect(t, "the model server is down", "2048 refusal model server down")
	old := b.d
	old.UpdatedAt = begun.Add(-time.Hour)
	b.Refused(&old, "con_1", 1024)
	b.expect(t, "a refusal from before the deployment's last change", "2048 refusal model server down")
	want := []string{
		"con_1 cuts prompts 0", "con_1 cuts prompts 4096", "con_1 cuts prompts 8192", "con_1 available 0",
	}
	if !slices.Equal(b.changes, want) {
		t.Errorf("changes %q, want %q", b.changes, want)
	}
}

// A count that shows a cut does not end a window, and is the end of none.
func TestWindowEnds(t *testing.T) {
	changed := func(b *bench) { b.OnChange(store.Change{Kind: store.KindDeployment, Account: "default", ID: "m"}) }
	for name, end := range map[string]func(b *bench){
		"a day":           func(b *bench) { b.now = b.now.Add(24 * time.Hour) },
		"a new tunnel":    func(b *bench) { b.route.Since = b.now.Add(time.Second) },
		"a longer prompt": func(b *bench) { b.counted(3073, tokens.None) },
		"another version": func(b *bench) { b.d.UpdatedAt = b.now },
		"a measurement":   func(b *bench) { b.Measured(&b.d, "con_1", 0, false) },
		"the removal":     changed,
	} {
		for source, record := range map[string]func(b *bench){
			"3072 refusal available":     func(b *bench) { b.Refused(&b.d, "con_1", 3072) },
			"3072 measured available":    func(b *bench) { b.Measured(&b.d, "con_1", 3072, false) },
			"1000 refusal available":     func(b *bench) { b.Refused(&b.d, "con_1", 1000) },
			"3000 measured cuts prompts": func(b *bench) { b.Measured(&b.d, "con_1", 3000, true) },
		} {
			b := newBench()
			record(b)
			b.OnChange(store.Change{Kind: store.KindDeployment, Account: "default", ID: "other"})
			b.OnChange(store.Change{Kind: store.KindKey, Account: "default", ID: "m"})
			b.now = b.now.Add(23 * time.Hour)
			b.counted(900, tokens.Low)
			b.expect(t, source, source)
			end(b)
			b.expect(t, source+" after "+name, "0  available")
		}
	}
	b := newBench()
	b.counted(2050, tokens.Cut)
	b.counted(9000, tokens.None)
	b.expect(t, "a longer prompt", "0  cuts prompts")
	b.route.Since = b.now.Add(time.Second)
	b.expect(t, "the model server has started again", "0  available")
}

func TestLookUpsAllocateNothing(t *testing.T) {
	b := newBench()
	b.Refused(&b.d, "con_1", 4096)
	if n := testing.AllocsPerRun(100, func() {
		b.Window(&b.d, "con_1", b.route)
		b.State(&b.d, "con_1", b.route)
		b.Window(&b.d, "con_2", b.route)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
