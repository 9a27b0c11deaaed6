package rig

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/postern-dev/postern/tests/rig/freeport"
)

// GatewayOptions configure a gateway.
type GatewayOptions struct {
	Name   string // of its process and files; default: gateway
	Host   string // where all reach it, or localhost; default: the loopback's address
	HTTPS  bool   // serve HTTPS, with a certificate that Caddy makes, and HTTP/2
	Global string // lines within the global options
	App    string // lines within their model_gateway block; $UDP is the address of its tunnels
	Site   string // lines within the site
	Model  string // lines within the site's model_gateway block
	// Storage is the kind of storage and what belongs to it. Default: bolt, in the rig.
	Storage string
	Sites   string // further sites
	Plain   bool   // no gateway, but a Caddy with these lines
	// Grace is how long running requests get when the process ends or takes another
	// configuration. Default: 20 s.
	Grace time.Duration
	// Cgroup is the folder of a cgroup for the process. Default: that of the caller.
	Cgroup string
}

// A Gateway is a caddy process with its addresses, which do not change when it is started again.
type Gateway struct {
	*Rig
	Admin     Admin
	URL       string // http://127.0.0.1:port of the public API
	UDP       string // host:port that connectors dial
	Caddyfile string // path
	Process   *Process
	Account   string // of Manage and what uses it; default: the default account

	listen   string // host:port behind the URL
	database string // path
	plain    bool
}

// Gateway returns a gateway that has not been started.
func (r *Rig) Gateway(o GatewayOptions) (*Gateway, error) {
	var at [3]string
	for i := range at {
		var err error
		if at[i], err = freeport.Addr(); err != nil {
			return nil, err
		}
	}
	if o.Host != "" && o.Host != "localhost" {
		for i := range at {
			at[i] = strings.Replace(at[i], "127.0.0.1", o.Host, 1)
		}
	}
	g := &Gateway{Rig: r, Admin: Admin(at[0]), listen: at[1], UDP: at[2]}
	g.URL = "http://" + g.listen
	if o.Host == "localhost" {
		g.URL = strings.Replace(g.URL, "127.0.0.1", o.Host, 1)
	}
	if o.HTTPS {
		g.URL = strings.Replace(g.URL, "http://", "https://", 1)
	}
	name := cmp.Or(o.Name, "gateway")
	g.Caddyfile, g.database = filepath.Join(r.Dir, "Caddyfile"), filepath.Join(r.Dir, name+".db")
	if o.Name != "" {
		g.Caddyfile += "." + name
	}
	if err := g.Configure(o); err != nil {
		return nil, err
	}
	var err error
	g.Process, err = r.Process(name, func() *exec.Cmd {
		cmd := g.Caddy("run", "--config", g.Caddyfile, "--adapter", "caddyfile")
		if o.Cgroup != "" {
			cmd.Args = append([]string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, o.Cgroup}, cmd.Args...)
			cmd.Path = "/bin/sh"
		}
		return cmd
	})
	return g, err
}

// Configure writes the Caddyfile; Reload or Start puts it into effect. The
// addresses remain as they are.
func (g *Gateway) Configure(o GatewayOptions) error {
	g.plain = o.Plain
	https, certificate := "disable_redirects", ""
	if o.HTTPS {
		certificate = "tls internal"
	} else if o.Sites == "" {
		https = "off"
	}
	host, _, _ := net.SplitHostPort(g.listen) // it has one
	tunnels, model := "", ""
	if !g.plain {
		tunnels = fmt.Sprintf("model_gateway {\n\t\tlisten %s\n\t\tpublic %[1]s\n\t\tstorage %s\n\t\t%s\n\t}", g.UDP,
			cmp.Or(o.Storage, "bolt "+g.database), strings.ReplaceAll(o.App, "$UDP", g.UDP))
		model = fmt.Sprintf("model_gateway {\n\t\t%s\n\t}", o.Model)
	}
	text := fmt.Sprintf(`{
	admin %s
	persist_config off
	auto_https %s
	skip_install_trust
	servers {
		protocols h1 h2
	}
	grace_period %s
	%s
	%s
}
%s {
	bind %s
	%s
	%s
	%s
}
%s`, g.Admin, https, cmp.Or(o.Grace, 20*time.Second), o.Global, tunnels, g.URL, host, certificate, o.Site, model,
		o.Sites)
	if err := os.WriteFile(g.Caddyfile, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the Caddyfile: %w", err)
	}
	return nil
}

// Caddy returns a command of the gateway's own binary.
func (g *Gateway) Caddy(args ...string) *exec.Cmd { return g.Command("caddy", args...) }

// Start starts the gateway, which must not be running, and waits until it
// serves.
func (g *Gateway) Start(ctx context.Context) error {
	if err := g.Process.Start(); err != nil {
		return err
	}
	ctx, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	return Poll(ctx, StartLimit, 20*time.Millisecond, "starting "+g.Process.Name, func(ctx context.Context) error {
		if !g.Process.Running() {
			ended(errors.New(g.Process.Name + " has ended while starting; its last output:\n" + g.Process.Tail()))
		}
		page := "/model_gateway/status"
		if g.plain {
			page = "/config/"
		}
		if _, err := g.Admin.Call(ctx, http.MethodGet, page, nil); err != nil {
			return err
		}
		return g.listens(ctx)
	})
}

// listens returns nil once the public API takes connections; with HTTPS, once
// it has its certificate.
func (g *Gateway) listens(ctx context.Context) error {
	var dialer interface {
		DialContext(ctx context.Context, network, addr string) (net.Conn, error)
	} = &net.Dialer{}
	scheme, addr, _ := strings.Cut(g.URL, "://")
	if scheme == "https" {
		dialer = &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // the gateway's own authority signed it
	}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Reload applies the Caddyfile as `caddy reload` does.
func (g *Gateway) Reload() error {
	out, err := g.Caddy("reload", "--config", g.Caddyfile, "--adapter", "caddyfile", "--address", string(g.Admin),
		"--force").CombinedOutput()
	if err != nil {
		return fmt.Errorf("caddy reload: %w\n%s", err, out)
	}
	return nil
}

// Manage is [Admin.Manage] in the gateway's account. The body has the fields of a JSON
// object.
func (g *Gateway) Manage(ctx context.Context, method, path string, body, into any) error {
	if g.Account == "" {
		return g.Admin.Manage(ctx, method, path, body, into)
	}
	if method == http.MethodGet || method == http.MethodDelete {
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		return g.Admin.Manage(ctx, method, path+separator+"account="+url.QueryEscape(g.Account), nil, into)
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding a request: %w", err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(encoded, &fields); err != nil {
		return fmt.Errorf("reading the fields of a request: %w", err)
	}
	fields["account"] = g.Account
	return g.Admin.Manage(ctx, method, path, fields, into)
}

// Connectors lists the account's connectors.
func (g *Gateway) Connectors(ctx context.Context) (list []Listed, err error) {
	err = g.Manage(ctx, http.MethodGet, "/connectors", nil, &list)
	return list, err
}

// Key creates a key and returns its id and the key itself.
func (g *Gateway) Key(ctx context.Context, name, scope string) (id, key string, err error) {
	var k struct{ ID, Key string }
	err = g.Manage(ctx, http.MethodPost, "/keys", map[string]string{"name": name, "scope": scope}, &k)
	if k.Key != "" {
		g.Hide(k.Key)
	}
	return k.ID, k.Key, err
}

// Deploy registers a public model name.
func (g *Gateway) Deploy(ctx context.Context, name string, body any) error {
	return g.Manage(ctx, http.MethodPut, "/deployments/"+url.PathEscape(name), body, nil)
}
