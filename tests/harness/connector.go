package harness

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/proc"
)

// A Connector is a connector that the gateway knows, and its process.
type Connector struct {
	ID, Name, Token string
	Config          string // path
	Process         *proc.Process

	gateway *Gateway
}

// Connector creates a connector for one upstream, in the plain form of its
// configuration, starts it and waits until it is online.
func (g *Gateway) Connector(t testing.TB, name, upstream string) *Connector {
	t.Helper()
	c := g.NewConnector(t, name, map[string]any{"upstream": upstream})
	c.Start(t)
	return c
}

// NewConnector creates a connector with a configuration, to which the token is
// added, and does not start it.
func (g *Gateway) NewConnector(t testing.TB, name string, config map[string]any) *Connector {
	t.Helper()
	var created struct {
		ID    string `json:"id"`
		Token string `json:"tunnel_token"`
	}
	g.Manage(t, http.MethodPost, "/connectors", map[string]string{"name": name}, &created)
	c := &Connector{ID: created.ID, Name: name, Token: created.Token, gateway: g}
	c.hideSecrets(t)
	config["tunnel_token"] = c.Token
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	c.Config = filepath.Join(g.Dir, "connector-"+name+".json")
	if err := os.WriteFile(c.Config, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// hideSecrets forbids the token and the secret within it in all logs.
func (c *Connector) hideSecrets(t testing.TB) {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(c.Token, "ptt_"))
	if err != nil {
		t.Fatalf("the tunnel token is not ptt_ and base64url: %v", err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatalf("the tunnel token holds no JSON: %v", err)
	}
	c.gateway.Hide(c.Token)
	hidden := false
	for name, v := range fields {
		if text, ok := v.(string); ok && strings.EqualFold(name, "secret") && text != "" {
			c.gateway.Hide(text)
			hidden = true
		}
	}
	if !hidden {
		t.Fatal("the tunnel token holds no secret")
	}
}

// Launch starts the connector's process and does not wait.
func (c *Connector) Launch(t testing.TB) {
	t.Helper()
	cmd := exec.Command(binary(t, "connector"), "run", "--config", c.Config)
	cmd.Dir = c.gateway.Dir
	cmd.Env = c.gateway.environment()
	c.Process = proc.Start(t, c.gateway.Dir, "connector-"+c.Name, cmd)
	c.gateway.watch(c.Process)
}

// Start starts the connector's process and waits until the gateway sees it.
func (c *Connector) Start(t testing.TB) {
	t.Helper()
	c.Launch(t)
	c.WaitState(t, "online", ready)
}

// State asks the gateway for the connector's state: online or offline.
func (c *Connector) State(ctx context.Context) (string, error) {
	b, err := c.gateway.get(ctx, "/model_gateway/connectors")
	if err != nil {
		return "", err
	}
	var list []struct{ ID, State string }
	if err := json.Unmarshal(b, &list); err != nil {
		return "", err
	}
	for _, item := range list {
		if item.ID == c.ID {
			return item.State, nil
		}
	}
	return "", fmt.Errorf("connector %s is not in the list", c.ID)
}

// WaitState waits until the gateway reports a state.
func (c *Connector) WaitState(t testing.TB, want string, limit time.Duration) {
	t.Helper()
	what := fmt.Sprintf("connector %s being %s", c.Name, want)
	proc.Poll(t, limit, what, func(ctx context.Context) error {
		got, err := c.State(ctx)
		if err == nil && got != want {
			err = fmt.Errorf("it is %s", got)
		}
		return err
	})
}

// Doctor runs `connector doctor` with the connector's configuration and returns the
// results of its checks by name.
func (c *Connector) Doctor(t testing.TB) map[string]string {
	t.Helper()
	cmd := exec.Command(binary(t, "connector"), "doctor", "--json", "--config", c.Config)
	cmd.Dir, cmd.Env = c.gateway.Dir, c.gateway.environment()
	b, err := cmd.Output()
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
