package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// A Connector is a connector that a gateway knows.
type Connector struct {
	ID, Name, Token string
	Config          string   // path of its configuration
	Process         *Process // the newest one; nil before the first

	gateway *Gateway
}

// CreateConnector creates a connector at the gateway. It has no configuration.
func (g *Gateway) CreateConnector(ctx context.Context, name string) (*Connector, error) {
	var created struct {
		ID    string `json:"id"`
		Token string `json:"tunnel_token"`
	}
	if err := g.Manage(ctx, http.MethodPost, "/connectors", map[string]string{"name": name}, &created); err != nil {
		return nil, err
	}
	token, err := link.ParseToken(created.Token)
	if err != nil {
		return nil, err
	}
	g.Hide(created.Token, token.Secret)
	return &Connector{ID: created.ID, Name: name, Token: created.Token, gateway: g}, nil
}

// Configure writes the connector's configuration, to which its token is added.
func (c *Connector) Configure(config map[string]any) error {
	config["tunnel_token"] = c.Token
	b, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("encoding a connector's configuration: %w", err)
	}
	c.Config = filepath.Join(c.gateway.Dir, "connector-"+c.Name+".json")
	if err := os.WriteFile(c.Config, b, 0o600); err != nil {
		return fmt.Errorf("writing a connector's configuration: %w", err)
	}
	return nil
}

// Launch starts a process of the connector, in addition to earlier ones that may
// still run.
func (c *Connector) Launch(env ...string) error {
	p, err := c.gateway.Rig.Process("connector-"+c.Name, func() *exec.Cmd {
		cmd := c.gateway.Command("connector", "run", "--config", c.Config)
		cmd.Env = append(cmd.Env, env...)
		return cmd
	})
	if err != nil {
		return err
	}
	c.Process = p
	return p.Start()
}

// State asks the gateway for the connector's state: online or offline.
func (c *Connector) State(ctx context.Context) (string, error) {
	state, _, err := c.Tunnel(ctx)
	return state, err
}

// Tunnel asks the gateway for the connector's state, and since when it has its tunnel.
func (c *Connector) Tunnel(ctx context.Context) (state, since string, err error) {
	list, err := c.gateway.Connectors(ctx)
	if err != nil {
		return "", "", err
	}
	for _, item := range list {
		if item.ID == c.ID {
			return item.State, item.Since, nil
		}
	}
	return "", "", fmt.Errorf("connector %s is not in the list", c.ID)
}

// Await waits until the gateway reports a state.
func (c *Connector) Await(ctx context.Context, want string, limit time.Duration) error {
	return Poll(ctx, limit, 10*time.Millisecond, fmt.Sprintf("connector %s being %s", c.Name, want),
		func(ctx context.Context) error {
			got, err := c.State(ctx)
			if err == nil && got != want {
				err = fmt.Errorf("it is %s", got)
			}
			return err
		})
}
