package metrics

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/turns"
)

// turnsOf collects the metrics of places at model servers.
type turnsOf struct{ *gateway.Services }

func (turnsOf) Describe(chan<- *prometheus.Desc) {}

func (o turnsOf) Collect(ch chan<- prometheus.Metric) {
	collectTurns(o.Services, emitAs(ch, prometheus.GaugeValue), emitAs(ch, prometheus.CounterValue))
}

// Running and waiting requests are counted by deployment, and swaps at servers that load one model at a time.
func TestTurns(t *testing.T) {
	kv, err := store.OpenBolt(filepath.Join(t.TempDir(), "gateway.db"), store.BoltOptions{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.New(kv, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	synctest.Test(t, func(t *testing.T) {
		scheduler := turns.New(func(_, name string) (turns.Deployment, bool) {
			return turns.Deployment{Connectors: []string{"con_1"}, Upstream: name, MaxConcurrency: 1}, true
		})
		scheduler.SetConnector(turns.Connector{
			ID: "con_1", Account: store.DefaultAccount, Servers: []turns.Server{{Name: "swap", OneModel: true}, {Name: "vllm"}},
			Resolve: func(name, upstream, _ string) (string, string, error) { return upstream, name, nil },
		})
		ask := func(deployment string) {
			place, err := scheduler.Wait(t.Context(), &turns.Request{Account: store.DefaultAccount, Deployment: deployment})
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(2500 * time.Millisecond)
			place.Answered()
			time.Sleep(time.Second)
			place.Leave()
		}
		for _, deployment := range []string{"swap", "swap", "swap", "vllm"} {
			go ask(deployment)
			synctest.Wait()
		}
		time.Sleep(3 * time.Second)
		values := gathered(t, turnsOf{&gateway.Services{Backend: &serve.Backend{Store: st, Turns: scheduler}}})
		for series, want := range map[string]string{
			`postern_places_used deployment=swap`:                            "1",
			`postern_places_used deployment=vllm`:                            "1",
			`postern_queue_length deployment=swap`:                           "2",
			`postern_queue_length deployment=vllm`:                           "0",
			`postern_model_swaps_total connector=con_1 upstream=swap`:        "1",
			`postern_model_swap_seconds_total connector=con_1 upstream=swap`: "2.5",
		} {
			if values[series] != want {
				t.Errorf("%s is %q, not %q", series, values[series], want)
			}
			delete(values, series)
		}
		if len(values) > 0 {
			t.Errorf("also %v", values)
		}
		time.Sleep(time.Minute)
	})
}
