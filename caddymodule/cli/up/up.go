// Package up is `caddy gateway up`: a gateway, a connector and, where the machine
// has no model server, a scripted model, all in this process.
package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/scripted"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/version"
)

// Host is the program that has the gateway as a module.
type Host struct {
	Port    int      // UDP, that connectors dial by default
	Console string   // path of the console, without the slash at its end
	Paths   []string // all paths that a site of the gateway serves

	// Hold keeps a database open until release is called. Its gateway prints no setup
	// link.
	Hold func(database string, logger *slog.Logger) (release func() error, err error)
	// Gateway returns the gateway of the running configuration.
	Gateway func() (Gateway, error)
}

// Gateway is the running gateway.
type Gateway struct {
	Manage  *manage.Service
	Tunnels *tunnel.Hub
}

// Options configures a [Run].
type Options struct {
	Host     Host
	Connect  string    // base URL of the model server; "" searches
	Listen   string    // "" is DefaultListen
	Search   []string  // base URLs to search, in this order; nil: the usual ones
	Program  string    // command that starts this program
	Messages io.Writer // progress and warnings
}

// Run is one run of `caddy gateway up`.
type Run struct {
	Options
	addresses addresses
	ready     Ready
	scripted  *http.Server
	running   bool         // Caddy was loaded
	release   func() error // the store, held from before the gateway to after it

	endAgent  context.CancelFunc
	agentDone chan error // closed after the agent's one result
}

// Ready describes a started run.
type Ready struct {
	URL         string   `json:"url"`
	ModelServer string   `json:"model_server"` // base URL
	Scripted    bool     `json:"scripted"`     // it is the built-in one
	Models      []string `json:"models"`       // public names
	Key         string   `json:"key"`
	Console     string   `json:"console"` // the one-time link for the first user, else the address
	Admin       string   `json:"admin"`   // address of the admin endpoint
	Curl        string   `json:"curl"`
	Notes       []string `json:"notes,omitempty"`

	Program    string `json:"-"` // command that starts this program
	UsualAdmin bool   `json:"-"` // the commands find it without --address
	Setup      bool   `json:"-"` // Console is the link for the first user
}

// UsageError marks an error in the command line itself.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

func usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

const (
	// onlineTimeout bounds the wait for our own connector, over loopback.
	onlineTimeout = 10 * time.Second
	// agentGrace is how long running requests may take after Ctrl-C.
	agentGrace = 2 * time.Second
)

// New prepares a run.
func New(o Options) *Run {
	if o.Listen == "" {
		o.Listen = DefaultListen
	}
	if o.Search == nil {
		o.Search = usualBases
	}
	return &Run{Options: o, ready: Ready{Program: o.Program}}
}

// Start starts everything. Stop must be called afterwards, also after an error.
func (u *Run) Start(ctx context.Context) (*Ready, error) {
	server, err := u.modelServer(ctx)
	if err != nil {
		return nil, err
	}
	if err := u.startGateway(); err != nil {
		return nil, err
	}
	gateway, err := u.Host.Gateway()
	if err != nil {
		return nil, err
	}
	ctx = manage.WithCaller(ctx, manage.Caller{Name: "caddy gateway up", Operator: true})
	local := account{gateway.Manage}
	connector, err := u.startConnector(ctx, gateway.Tunnels, local, server)
	if err != nil {
		return nil, err
	}
	if err := local.register(ctx, connector, server.models, &u.ready); err != nil {
		return nil, err
	}
	if err := local.newKey(ctx, &u.ready); err != nil {
		return nil, err
	}
	u.ready.URL, u.ready.Admin = u.addresses.url(), u.addresses.admin
	if err := local.console(ctx, u.Host.Console, &u.ready); err != nil {
		return nil, err
	}
	if Exposed(u.addresses.admin) {
		u.ready.note("the admin endpoint is at %s, where every program on this machine can manage the gateway", u.addresses.admin)
	}
	u.ready.UsualAdmin = u.addresses.admin == DefaultAdmin()
	u.ready.Curl = u.ready.curl()
	return &u.ready, nil
}

// modelServer chooses the addresses and the model server. It searches before the
// gateway listens, so that it cannot find the gateway.
func (u *Run) modelServer(ctx context.Context) (modelServer, error) {
	probe := newProber()
	connect := ""
	if u.Connect != "" {
		var err error
		if connect, err = parseConnect(u.Connect); err != nil {
			return modelServer{}, err
		}
	}
	var err error
	u.addresses, err = chooseAddresses(u.Listen, u.Host.Port)
	if errors.Is(err, errPortTaken) {
		return modelServer{}, u.explainTaken(ctx, probe, connect, err)
	}
	if err != nil {
		return modelServer{}, err
	}
	if connect != "" {
		return u.namedServer(ctx, probe, connect)
	}
	server, ok, notes := probe.search(ctx, u.Search)
	u.ready.Notes = notes
	if !ok {
		if server, err = u.startScripted(); err != nil {
			return modelServer{}, err
		}
	}
	u.ready.ModelServer = server.base
	return server, nil
}

// namedServer queries the server of --connect.
func (u *Run) namedServer(ctx context.Context, probe prober, base string) (modelServer, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	server, err := probe.ask(ctx, base)
	var unreachable *net.OpError
	switch {
	case errors.As(err, &unreachable):
		return modelServer{}, fmt.Errorf("no model server answers at %s: %w\nStart it, or leave --connect out to search this machine", base, err)
	case err != nil:
		return modelServer{}, fmt.Errorf("%s is not usable as a model server: %w", base, err)
	case len(server.models) == 0:
		return modelServer{}, fmt.Errorf("the model server at %s has no models; load one there (`ollama pull llama3.2`, for example) and run this again", base)
	}
	u.ready.ModelServer = server.base
	return server, nil
}

// explainTaken returns the error of a taken HTTP port, with a command line that works.
// A model server on the default port is a likely cause.
func (u *Run) explainTaken(ctx context.Context, probe prober, connect string, cause error) error {
	command := u.Program + " gateway up --listen localhost:8081"
	if connect != "" {
		return fmt.Errorf("%w by another program; choose another one:\n\n  %s --connect %s", cause, command, connect)
	}
	_, port, _ := net.SplitHostPort(u.Listen)
	base := "http://localhost:" + port
	if server, ok, _ := probe.search(ctx, []string{base}); ok {
		return fmt.Errorf("%w by a model server; serve the gateway on another one:\n\n  %s --connect %s", cause, command, server.base)
	}
	return fmt.Errorf("%w by another program, maybe another `caddy gateway up`; stop it, or choose another port:\n\n  %s", cause, command)
}

// startScripted serves the scripted model on a loopback port.
func (u *Run) startScripted() (modelServer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return modelServer{}, fmt.Errorf("starting the scripted model: %w", err)
	}
	u.scripted = &http.Server{Handler: scripted.New(scripted.TokenDelay), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = u.scripted.Serve(ln) }() // ends with Stop
	u.ready.Scripted = true
	return modelServer{base: "http://" + ln.Addr().String(), models: []string{scripted.ModelID}}, nil
}

// startGateway runs Caddy with our configuration.
func (u *Run) startGateway() error {
	path := database()
	config, err := adapt(u.addresses.caddyfile(path, u.Host))
	if err != nil {
		return err
	}
	if u.release, err = u.Host.Hold(path, u.logger()); err != nil {
		return err
	}
	if err := caddy.Load(config, true); err != nil {
		return fmt.Errorf("starting the gateway: %w", err)
	}
	u.running = true
	return nil
}

// logger logs warnings to the terminal.
func (u *Run) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(u.Messages, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// startConnector runs a connector in this process, as `connector run` would,
// and waits until its tunnel is up.
func (u *Run) startConnector(ctx context.Context, hub *tunnel.Hub, local account, server modelServer) (id string, err error) {
	id, token, err := local.connector(ctx)
	if err != nil {
		return "", err
	}
	configuration := config.Config{
		TunnelToken: token,
		Upstreams:   map[string]config.Upstream{ownName: {BaseURL: server.base + "/v1"}},
	}
	a, err := agent.New(configuration, agent.Options{
		Logger: u.logger(), Version: version.Number(), DrainTimeout: agentGrace,
		Keep: func(string, string) error { return nil }, // each run creates a token
	})
	if err != nil {
		return "", fmt.Errorf("configuring the connector: %w", err)
	}
	// Not derived from ctx: Stop ends the agent before the gateway.
	agentCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	u.endAgent, u.agentDone = cancel, make(chan error, 1)
	go func() {
		u.agentDone <- a.Run(agentCtx)
		close(u.agentDone)
	}()
	if _, err := hub.Wait(ctx, id, onlineTimeout); err != nil {
		select {
		case err := <-u.agentDone:
			return "", fmt.Errorf("running the connector: %w", err)
		default:
		}
		return "", fmt.Errorf("waiting for the connector's tunnel: %w", err)
	}
	return id, nil
}

// Wait blocks until ctx ends or the connector stops, which is an error. If it was
// removed, Wait continues: the gateway may have other connectors.
func (u *Run) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-u.agentDone:
		var fatal *agent.FatalError
		switch {
		case errors.As(err, &fatal):
			fmt.Fprintf(u.Messages, "Warning: this process no longer has a connector: %s. The gateway continues to run; restart this command for a new connector.\n", fatal.Reason)
			<-ctx.Done()
			return nil
		case err == nil:
			err = errors.New("it stopped")
		}
		return fmt.Errorf("running the connector: %w", err)
	}
}

// Stop stops everything that Start started. The connector is first: it drains while
// the gateway still forwards the answers.
func (u *Run) Stop() {
	if u.endAgent != nil {
		u.endAgent()
		select {
		case <-u.agentDone:
		case <-time.After(2 * agentGrace):
		}
	}
	if u.running {
		u.running = false
		if err := caddy.Stop(); err != nil {
			fmt.Fprintln(u.Messages, "Warning: failed to stop the gateway: "+err.Error())
		}
	}
	if u.release != nil {
		if err := u.release(); err != nil {
			fmt.Fprintln(u.Messages, "Warning: failed to close the database: "+err.Error())
		}
		u.release = nil
	}
	if u.scripted != nil {
		_ = u.scripted.Close()
	}
}

func (r *Ready) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// curl returns a request to paste into a shell. Public model names contain no
// character that needs quoting in a shell or JSON.
func (r *Ready) curl() string {
	return fmt.Sprintf(`curl -N %s/v1/chat/completions -H "Authorization: Bearer %s" -H "Content-Type: application/json" `+
		`-d '{"model":"%s","stream":true,"messages":[{"role":"user","content":"Say hello."}]}'`, r.URL, r.Key, chatModel(r.Models))
}

// chatModel picks a model for the sample request: the first whose name does not suggest
// an embedding model.
func chatModel(models []string) string {
	for _, m := range models {
		if !strings.Contains(strings.ToLower(m), "embed") {
			return m
		}
	}
	return models[0]
}
