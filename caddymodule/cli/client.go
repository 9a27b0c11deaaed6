package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/manage"
)

// client calls the management API of a running gateway.
type client struct {
	address string // a Caddy network address
}

// client finds the admin endpoint as Caddy's own commands do.
func (in *invocation) client() (client, error) {
	if in.text("address") == "" && in.text("config") == "" {
		return client{up.DefaultAdmin()}, nil
	}
	address, err := caddycmd.DetermineAdminAPIAddress(in.text("address"), nil, in.text("config"), in.text("adapter"))
	if err != nil {
		return client{}, usagef("finding the admin endpoint: %w", err)
	}
	return client{address}, nil
}

// do makes a request and decodes the answer into out.
func (c client) do(ctx context.Context, r request, out any) error {
	addr, err := caddy.ParseNetworkAddress(c.address)
	if err != nil || addr.PortRangeSize() > 1 {
		return usagef("the admin endpoint %q is not an address such as localhost:2019", c.address)
	}
	dial, header := addr.JoinHostPort(0), http.Header{"Content-Type": {"application/json"}}
	base := "http://" + dial
	if addr.IsUnixNetwork() || addr.IsFdNetwork() {
		base = "http://127.0.0.1"
		dial, _, _ = strings.Cut(dial, "|") // the permissions of a socket
	} else {
		header.Set("Origin", base) // Caddy checks it
	}
	var body io.Reader
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, base+manage.AdminPrefix+r.path, body)
	if err != nil {
		return fmt.Errorf("creating the request: %w", err)
	}
	req.Header = header
	resp, err := (&http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, addr.Network, dial)
		},
	}}).Do(req)
	if err != nil {
		return fmt.Errorf("no gateway answers at %s: %w\nStart it with `caddy run --config Caddyfile` or `caddy gateway up`, or name its admin endpoint with --address", c.address, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return c.refusal(resp)
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("reading the answer of the gateway at %s: %w", c.address, err)
	}
	return nil
}

// refusal returns the error of a response, from the management API or from another
// server.
func (c client) refusal(resp *http.Response) error {
	const limit = 1 << 20 // bytes
	var answer struct {
		Error string `json:"error"`
	}
	err := json.NewDecoder(io.LimitReader(resp.Body, limit)).Decode(&answer)
	switch {
	case err == nil && answer.Error != "":
		return errors.New(answer.Error)
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("the Caddy at %s has no model gateway; build it with the module (`caddy list-modules` shows the modules of a program)", c.address)
	}
	return fmt.Errorf("the server at %s answered HTTP %d", c.address, resp.StatusCode)
}

// url returns the base of the gateway's HTTP API for a sample request, or a
// placeholder if it is not known.
func (in *invocation) url() string {
	var status manage.Status
	c, err := in.client()
	if err != nil || c.do(in.Context(), request{method: http.MethodGet, path: "/status"}, &status) != nil || status.URL == "" {
		return "https://YOUR-GATEWAY"
	}
	return status.URL
}
