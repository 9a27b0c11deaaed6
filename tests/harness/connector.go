package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/rig"
)

// A Connector is a connector that the gateway knows, and its newest process.
type Connector struct {
	rig.Connector
	Process *Process

	gateway *Gateway
}

// Connector creates a connector for one upstream, with the short form of the configuration, starts it and
// waits until it is online. It uses QUIC only: on a slow machine it would change to a WebSocket.
func (g *Gateway) Connector(t testing.TB, name, upstream string) *Connector {
	t.Helper()
	c := g.NewConnector(t, name, map[string]any{"upstream": upstream, "transport": "quic"})
	c.Start(t)
	return c
}

// NewConnector creates a connector with a configuration, to which the token is
// added, and does not start it.
func (g *Gateway) NewConnector(t testing.TB, name string, config map[string]any) *Connector {
	t.Helper()
	c, err := g.CreateConnector(t.Context(), name)
	if err == nil {
		err = c.Configure(config)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &Connector{Connector: *c, gateway: g}
}

// Launch starts a process of the connector and does not wait. At a gateway in the
// test's process, it runs there.
func (c *Connector) Launch(t testing.TB) {
	t.Helper()
	if c.gateway.inProcess != nil {
		c.launchInProcess(t)
		return
	}
	if err := c.Connector.Launch(); err != nil {
		t.Fatal(err)
	}
	c.Process = keep(t, c.Connector.Process)
}

// launchInProcess runs the connector until the test ends.
func (c *Connector) launchInProcess(t testing.TB) {
	t.Helper()
	log, err := c.gateway.Rig.Log("connector-" + c.Name)
	if err != nil {
		t.Fatal(err)
	}
	configuration, err := os.ReadFile(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	stop, err := c.gateway.inProcess.Connect(configuration,
		slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// Start starts a process of the connector and waits until the gateway has the tunnel of this process, not of a
// killed one.
func (c *Connector) Start(t testing.TB) {
	t.Helper()
	_, before, err := c.Tunnel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Launch(t)
	Poll(t, rig.StartLimit, "starting connector "+c.Name, func(ctx context.Context) error {
		state, since, err := c.Tunnel(ctx)
		if err == nil && (state != "online" || since == before) {
			err = fmt.Errorf("it is %s since %q", state, since)
		}
		return err
	})
}

// WaitState waits until the gateway reports a state.
func (c *Connector) WaitState(t testing.TB, want string, limit time.Duration) {
	t.Helper()
	if err := c.Await(t.Context(), want, limit); err != nil {
		t.Fatal(err)
	}
}

// Doctor runs `connector doctor` with the connector's configuration and returns the
// results of its checks by name.
func (c *Connector) Doctor(t testing.TB) map[string]string {
	t.Helper()
	b, err := c.gateway.Rig.Command("connector", "doctor", "--json", "--config", c.Config).Output()
	var found struct {
		Checks []struct{ Check, Result string }
	}
	if jsonErr := json.Unmarshal(b, &found); jsonErr != nil {
		t.Fatalf("connector doctor: %v, %v, %s", jsonErr, err, b)
	}
	results := make(map[string]string)
	for _, f := range found.Checks {
		results[f.Check] = f.Result
	}
	return results
}
