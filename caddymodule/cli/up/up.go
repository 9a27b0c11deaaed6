// Package up is `caddy gateway up`: a gateway and a connector in this process, and a
// scripted model if the machine has no model server.
package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/program"
	"github.com/postern-dev/postern/caddymodule/scripted"
	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/clients"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/upstream"
)

// Host connects this package to the module of the gateway.
type Host struct {
	Port    int    // UDP, that connectors dial by default
	Console string // path of the console, without the slash at its end

	// StoreConfig returns the location of the store of a configuration in Caddy's JSON. If that
	// names none, it is the default.
	StoreConfig func(config []byte) (gateway.StoreConfig, error)
	// KeepOpen keeps a database open until release is called. A gateway that uses it meanwhile
	// prints no setup link.
	KeepOpen func(database string, logger *slog.Logger) (release func() error, err error)
	// Gateway returns the management operations of the running configuration.
	Gateway func() (*manage.Service, error)
}

// Options configures a [Run].
type Options struct {
	Host     Host
	Connect  string    // base URL of the model server; "" searches
	Listen   string    // HTTP address of the gateway; "": the first free port from 8080
	Cloud    bool      // publish models of clouds, too
	Search   []string  // base URLs to search, in this order; nil: the usual ones
	Program  string    // command that starts this program
	Messages io.Writer // progress and warnings
}

// Run is one run of `caddy gateway up`.
type Run struct {
	Options
	addresses addresses
	ready     Ready
	agentDone chan error // closed after the agent's one result
	stops     []func()   // in the order of the starts
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

	sample  manage.Deployment // of Curl
	Program string            `json:"-"` // command that starts this program
	Setup   bool              `json:"-"` // Console is the link for the first user
}

// UsageError marks an error in the command line itself.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Usagef formats a [UsageError].
func Usagef(format string, args ...any) error {
	return UsageError{fmt.Errorf(program.Named(format), args...)}
}

const (
	// startTimeout bounds the wait for the connector. A machine that is loading a model is slow.
	startTimeout = time.Minute
	// agentGrace bounds the time of running requests after Ctrl-C.
	agentGrace = 2 * time.Second
)

// New prepares a run.
func New(o Options) *Run {
	if o.Search == nil {
		o.Search = usualBases
	}
	return &Run{Options: o, ready: Ready{Program: o.Program}}
}

// Start starts everything. Call Stop afterwards, also after an error.
func (u *Run) Start(ctx context.Context) (*Ready, error) {
	server, err := u.modelServer(ctx)
	if err != nil {
		return nil, err
	}
	u.ready.URL, u.ready.Admin = u.addresses.url(), u.addresses.admin
	local, err := u.startGateway()
	if err != nil {
		return nil, err
	}
	ctx = manage.WithCaller(ctx, manage.Caller{Name: program.Named("caddy gateway up"), Operator: true})
	connector, err := u.startConnector(ctx, local, server)
	if err != nil {
		return nil, err
	}
	if err := local.publish(ctx, connector, server.models, &u.ready); err != nil {
		return nil, err
	}
	if err := local.setKey(ctx, &u.ready); err != nil {
		return nil, err
	}
	if err := local.setConsole(ctx, u.Host.Console, &u.ready); err != nil {
		return nil, err
	}
	if Exposed(u.addresses.admin) {
		u.ready.note("the admin endpoint is at %s, where every program on this machine can manage the gateway",
			u.addresses.admin)
	}
	u.ready.Curl = u.ready.curl()
	return &u.ready, nil
}

// modelServer chooses the addresses and the model server. It is called before the gateway
// listens, so that it cannot find the gateway.
func (u *Run) modelServer(ctx context.Context) (modelServer, error) {
	connect, err := parseConnect(u.Connect)
	if err != nil {
		return modelServer{}, err
	}
	u.addresses, err = chooseAddresses(u.Listen, u.Host.Port)
	if errors.Is(err, syscall.EADDRINUSE) {
		return modelServer{}, fmt.Errorf(program.Named("%w\nEnd the program there, maybe another `caddy gateway up` or a "+
			"model server, or choose another port with --listen"), err)
	}
	if err != nil {
		return modelServer{}, err
	}
	if u.Listen == "" && u.addresses.port != firstPort {
		u.ready.note("another program uses port %d, so the gateway uses port %d; --listen chooses another one", firstPort,
			u.addresses.port)
	}
	if connect != "" {
		return u.namedServer(ctx, connect)
	}
	searching, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	server, ok, notes := search(searching, u.Search)
	u.ready.Notes = append(u.ready.Notes, notes...)
	if !ok {
		if server, err = u.startScripted(); err != nil {
			return modelServer{}, err
		}
	}
	u.ready.ModelServer = server.base
	return server, nil
}

// namedServer returns the server of --connect.
func (u *Run) namedServer(ctx context.Context, base string) (modelServer, error) {
	server, err := listModels(ctx, base)
	switch {
	case errors.Is(err, upstream.ErrNotConnected):
		return modelServer{}, fmt.Errorf("no model server answers at %s: %w\n"+
			"Start it, or leave --connect out to search this machine", base, err)
	case errors.Is(err, errNoModels):
		return modelServer{}, fmt.Errorf("the model server at %s has no models; "+
			"load one there (`ollama pull llama3.2`, for example) and run this again", base)
	case err != nil:
		return modelServer{}, fmt.Errorf("%s is not usable as a model server: %w", base, err)
	}
	u.ready.ModelServer = server.base
	return server, nil
}

// startScripted serves the scripted model on a loopback port.
func (u *Run) startScripted() (modelServer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return modelServer{}, fmt.Errorf("starting the scripted model: %w", err)
	}
	server := &http.Server{Handler: scripted.New(scripted.TokenDelay), ReadHeaderTimeout: 10 * time.Second}
	u.stops = append(u.stops, func() { _ = server.Close() })
	go func() { _ = server.Serve(ln) }() // ends with Stop
	u.ready.Scripted = true
	return modelServer{base: "http://" + ln.Addr().String(), models: []string{scripted.ModelID}}, nil
}

// startGateway runs Caddy with the configuration of this run.
func (u *Run) startGateway() (account, error) {
	path := database()
	release, err := u.Host.KeepOpen(path, u.logger())
	if err != nil {
		return account{}, err
	}
	u.stops = append(u.stops, func() { u.warn("close the database", release()) })
	config, err := adapt(u.addresses.caddyfile(path))
	if err != nil {
		return account{}, err
	}
	if err := caddy.Load(config, true); err != nil {
		return account{}, fmt.Errorf("starting the gateway: %w", err)
	}
	u.stops = append(u.stops, func() { u.warn("stop the gateway", caddy.Stop()) })
	service, err := u.Host.Gateway()
	return account{service, keyFile(path), u.Cloud}, err
}

// logger logs warnings to the terminal.
func (u *Run) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(u.Messages, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// startConnector runs a connector in this process and waits until its tunnel is open.
func (u *Run) startConnector(ctx context.Context, local account, server modelServer) (id string, err error) {
	id, token, err := local.connector(ctx)
	if err != nil {
		return "", err
	}
	a, err := agent.New(config.Config{TunnelToken: token, Upstreams: upstreams(server.base)}, agent.Options{
		Logger: u.logger(), DrainTimeout: agentGrace,
	})
	if err != nil {
		return "", fmt.Errorf("configuring the connector: %w", err)
	}
	// Not derived from ctx: Stop ends the agent before the gateway.
	agentCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	u.agentDone = make(chan error, 1)
	u.stops = append(u.stops, func() {
		cancel()
		select {
		case <-u.agentDone:
		case <-time.After(2 * agentGrace):
		}
	})
	go func() {
		u.agentDone <- a.Run(agentCtx)
		close(u.agentDone)
	}()
	return id, u.awaitTunnel(ctx, local, id)
}

// awaitTunnel waits until the tunnel of the connector is open.
func (u *Run) awaitTunnel(ctx context.Context, local account, id string) error {
	const pause = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if ok, err := local.online(ctx, id); err != nil || ok {
			return err
		}
		select {
		case err := <-u.agentDone:
			return fmt.Errorf("running the connector: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("waiting for the connector's tunnel: %w", ctx.Err())
		case <-time.After(pause):
		}
	}
}

// Wait blocks until ctx ends, or returns an error if the connector stops. It continues if
// the connector was removed: the gateway may have other connectors.
func (u *Run) Wait(ctx context.Context) error {
	agentDone := u.agentDone
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-agentDone:
			var fatal *agent.FatalError
			switch {
			case errors.As(err, &fatal):
				fmt.Fprintf(u.Messages, "Warning: this process no longer has a connector: %s. The gateway continues to run; "+
					"restart this command for a new connector.\n", fatal.Reason)
				agentDone = nil
				continue
			case err == nil:
				err = errors.New("it stopped")
			}
			return fmt.Errorf("running the connector: %w", err)
		}
	}
}

// Stop stops everything that Start started, in the reverse order: the connector drains
// while the gateway still forwards the answers.
func (u *Run) Stop() {
	for _, stop := range slices.Backward(u.stops) {
		stop()
	}
	u.stops = nil
}

// warn prints a failure of Stop, unless err is nil.
func (u *Run) warn(do string, err error) {
	if err != nil {
		fmt.Fprintf(u.Messages, "Warning: failed to %s: %v\n", do, err)
	}
}

func (r *Ready) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// curl returns a request to paste into a shell. The public names of models contain no
// character that a shell or JSON would require to be quoted.
func (r *Ready) curl() string {
	v := clients.Values{Model: r.sample.Name, Kind: string(r.sample.ModelKind())}
	data := "-H \"Content-Type: application/json\" -d '" + v.Body(true) + "'"
	if v.Body(true) == "" {
		data = "-F model=" + v.Model + " -F file=@recording.wav"
	}
	return fmt.Sprintf(`curl -N %s/v1/%s -H "Authorization: Bearer %s" %s`, r.URL, v.Path(), r.Key, data)
}
