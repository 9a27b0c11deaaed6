package observed

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// measuringBench is a bench in a bubble. Each measurement takes ten seconds.
type measuringBench struct {
	*bench
	t     *testing.T
	cuts  bool
	again bool       // the result of Measure
	mu    sync.Mutex // guards log
	log   []string   // of the measurements
}

func (b *measuringBench) record(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, what)
}

func testMeasuring(t *testing.T, test func(b *measuringBench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &measuringBench{bench: newBench(), t: t, cuts: true}
		b.Table.now = time.Now
		b.route.Since = time.Now()
		b.Measure = func(ctx context.Context, d store.Deployment, connector string) (again bool) {
			b.record("begun " + connector)
			select {
			case <-time.After(10 * time.Second):
				b.record("measured")
				b.Measured(&d, connector, map[bool]int{true: 4096}[b.cuts], b.cuts)
			case <-ctx.Done():
				b.record(context.Cause(ctx).Error())
			}
			return b.again
		}
		test(b)
		b.Close()
	})
}

// wait lets a time pass, and checks what measurements have done since the last call.
func (b *measuringBench) wait(d time.Duration, what string, want ...string) {
	b.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.log, want) {
		b.t.Errorf("%s: %q, want %q", what, b.log, want)
	}
	b.log = nil
}

// A server that cuts a prompt is measured once a day, while it runs nothing.
func TestCutsAreMeasured(t *testing.T) {
	for _, doubt := range []tokens.Doubt{tokens.Low, tokens.Cut} {
		testMeasuring(t, func(b *measuringBench) {
			b.counted(2050, tokens.None)
			b.wait(time.Minute, "no doubt")
			running := b.Begin(&b.d, "con_1", "key_1", true)
			b.counted(2050, doubt)
			b.wait(time.Minute, "a request runs")
			running.End()
			b.wait(time.Minute, "idle", "begun con_1", "measured")
			b.expect(t, "measured", "4096 measured cuts prompts")
			b.counted(2050, doubt)
			b.wait(time.Hour, "again")
			b.counted(5000, tokens.None)
			b.counted(2050, doubt)
			b.wait(time.Hour, "after a longer prompt")
			b.wait(22*time.Hour, "within the day")
			b.cuts = false
			b.counted(2050, doubt)
			b.wait(time.Minute, "the next day", "begun con_1", "measured")
			b.expect(t, "nothing was cut", "0  available")
			b.counted(2050, doubt)
			b.expect(t, "the measurement decides", "0  available")
		})
	}
}

// A request for the same model server ends a measurement. It begins again, at most three times.
func TestRequestsEndMeasurements(t *testing.T) {
	testMeasuring(t, func(b *measuringBench) {
		other := b.d
		other.Name = "other"
		b.d.Connectors, other.Connectors = []string{"con_1", "con_2"}, []string{"con_1", "con_2"}
		all := map[string]*store.Deployment{"m": &b.d, "other": &other}
		b.Deployment = func(_, name string) (store.Deployment, bool) { return *all[name], true }
		upstream := "big"
		b.Route = func(_ string, target tunnel.Target) (tunnel.DeploymentRoute, bool) {
			r := b.route
			r.Upstream = map[string]string{"m": "big", "other": upstream}[target.Name]
			return r, true
		}
		elsewhere := b.Begin(&other, "con_2", "key_1", false)
		b.counted(2050, tokens.Cut)
		b.wait(time.Second, "another connector is busy", "begun con_1")
		requested := "a request for the model server has come: context canceled"
		for i := range 2 {
			request := b.Begin(&other, "con_1", "key_1", i == 0)
			b.wait(time.Minute, "a request has come", requested)
			request.End()
			b.wait(time.Second, "the request has ended", "begun con_1")
		}
		request := b.Begin(&b.d, "con_1", "key_1", true)
		request.End()
		b.wait(time.Hour, "the third request", requested)
		elsewhere.End()
		b.wait(time.Hour, "it was tried three times")

		upstream = "small"
		b.wait(24*time.Hour, "the next day")
		request = b.Begin(&other, "con_1", "key_1", true)
		b.counted(2050, tokens.Cut)
		b.wait(time.Second, "another upstream is busy", "begun con_1")
		request.End()
		b.wait(time.Minute, "to its end", "measured")
	})
}

// Known windows, and servers that cannot be reached, are not measured. An edge of a cluster without a tunnel to the
// connector does not measure.
func TestNotMeasured(t *testing.T) {
	for name, change := range map[string]func(b *measuringBench){
		"listed":  func(b *measuringBench) { b.route.Window = 8192 },
		"option":  func(b *measuringBench) { b.d.Options = compat.Options{ContextWindow: 8192} },
		"refusal": func(b *measuringBench) { b.Refused(&b.d, "con_1", 8192) },
		"down":    func(b *measuringBench) { b.route.State = health.ServerDown },
		"changed": func(b *measuringBench) { b.d.UpdatedAt = begun.Add(time.Hour) },
	} {
		testMeasuring(t, func(b *measuringBench) {
			old := b.d
			change(b)
			b.Counted(tokens.NewRegistration(old.Account, old.Name, old.UpdatedAt), "con_1", 2050, tokens.Cut)
			request := b.Begin(&b.d, "con_1", "key_1", true)
			request.End()
			b.wait(time.Hour, name)
			got := b.State(&b.d, "con_1", b.route)
			if name != "down" && (got.State == health.CutsPrompts) == (name == "changed") ||
				name == "refusal" && got.Window != 8192 {
				t.Errorf("%s: %+v", name, got)
			}
		})
	}
}

// A measurement that other requests have not let is tried again.
func TestMeasuredAgain(t *testing.T) {
	testMeasuring(t, func(b *measuringBench) {
		b.again = true
		b.Measure = func(context.Context, store.Deployment, string) bool {
			b.record("given up")
			return b.again
		}
		b.counted(2050, tokens.Cut)
		b.wait(time.Second, "not let", "given up")
		b.again = false
		request := b.Begin(&b.d, "con_1", "key_1", true)
		request.End()
		b.wait(time.Second, "again", "given up")
		request = b.Begin(&b.d, "con_1", "key_1", true)
		request.End()
		b.wait(time.Second, "it has ended")
	})
}

// Close ends what runs.
func TestCloseEndsMeasurements(t *testing.T) {
	testMeasuring(t, func(b *measuringBench) {
		b.counted(2050, tokens.Cut)
		b.wait(time.Second, "begun", "begun con_1")
		b.Close()
		b.wait(0, "closed", "context canceled")
	})
}

// Requests through other connectors do not look at the measurements that are due through one, and those through it look
// at each once.
func TestManyMeasurementsAreDue(t *testing.T) {
	testMeasuring(t, func(b *measuringBench) {
		const many = 100
		looks, route := 0, b.Route
		b.Deployment = func(account, name string) (store.Deployment, bool) {
			d := b.d
			d.Account, d.Name, d.Connectors = account, name, []string{"con_1", "con_2"}
			return d, true
		}
		b.Route = func(connector string, target tunnel.Target) (tunnel.DeploymentRoute, bool) {
			looks++
			return route(connector, target)
		}
		running := b.Begin(&b.d, "con_1", "key_1", true)
		for i := range many {
			r := tokens.NewRegistration(b.d.Account, fmt.Sprint("m", i), b.d.UpdatedAt)
			b.Counted(r, "con_1", 2050, tokens.Cut)
		}
		for connector, most := range map[string]int{"con_2": 10, "con_1": 2*many + 20} {
			looks = 0
			a := b.Begin(&b.d, connector, "key_1", true)
			if a.End(); looks > most {
				t.Errorf("a request through %s looked at %d routes", connector, looks)
			}
		}
		running.End()
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.log) != 1 {
			t.Errorf("measurements at one upstream: %q", b.log)
		}
	})
}
