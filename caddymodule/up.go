package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/scripted"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/version"
)

// up is one run of `caddy gateway up`: a gateway, a connector and, where the
// machine has no model server, the scripted model, all in this process.
type up struct {
	connect  string    // --connect; "" searches
	listen   string    // --listen; "" is the default
	search   []string  // base URLs to search, in this order
	messages io.Writer // progress and warnings, for people

	addresses upAddresses
	ready     upReady
	scripted  *http.Server
	running   bool              // Caddy was loaded
	store     ref[*storeHandle] // held from before the gateway to after it

	endAgent  context.CancelFunc
	agentDone chan error // closed after the agent's one result
}

const (
	// onlineTimeout bounds the wait for our own connector, over loopback.
	onlineTimeout = 10 * time.Second
	// agentGrace is how long running requests may take after Ctrl-C.
	agentGrace = 2 * time.Second
)

// start brings everything up. After an error as after success, stop must be
// called.
func (u *up) start(ctx context.Context) (*upReady, error) {
	server, err := u.modelServer(ctx)
	if err != nil {
		return nil, err
	}
	if err := u.startGateway(); err != nil {
		return nil, err
	}
	app, err := runningApp()
	if err != nil {
		return nil, err
	}
	service, err := app.Manage()
	if err != nil {
		return nil, err
	}
	ctx = manage.WithCaller(ctx, operator("caddy gateway up"))
	local := upAccount{service: service, secrets: app.Store()}
	connector, err := u.startConnector(ctx, app.Hub(), local, server)
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
	if err := local.console(ctx, &u.ready); err != nil {
		return nil, err
	}
	if exposedAdmin(u.addresses.admin) {
		u.ready.note("the admin endpoint is at %s, where every program on this machine can manage the gateway", u.addresses.admin)
	}
	u.ready.usualAdmin = u.addresses.admin == defaultAdmin()
	u.ready.Curl = u.ready.curl()
	return &u.ready, nil
}

// modelServer settles the addresses and the model server: it searches before
// anything of ours listens, so that it cannot find ourselves.
func (u *up) modelServer(ctx context.Context) (modelServer, error) {
	probe := newProber()
	listen, connect := u.listen, ""
	if listen == "" {
		listen = defaultUpListen
	}
	if u.connect != "" {
		var err error
		if connect, err = parseConnect(u.connect); err != nil {
			return modelServer{}, err
		}
	}
	addresses, err := chooseAddresses(listen)
	if errors.Is(err, errPortTaken) {
		return modelServer{}, u.explainTaken(ctx, probe, listen, connect, err)
	}
	if err != nil {
		return modelServer{}, err
	}
	u.addresses = addresses
	if connect != "" {
		return u.namedServer(ctx, probe, connect)
	}
	server, ok, notes := probe.search(ctx, u.search)
	u.ready.Notes = notes
	if !ok {
		if server, err = u.startScripted(ctx, probe); err != nil {
			return modelServer{}, err
		}
	}
	u.ready.ModelServer = server.base
	return server, nil
}

// namedServer asks the server that --connect names.
func (u *up) namedServer(ctx context.Context, probe prober, base string) (modelServer, error) {
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

// explainTaken turns a taken HTTP port into the command line that works. A
// model server on our default port is a likely cause.
func (u *up) explainTaken(ctx context.Context, probe prober, listen, connect string, cause error) error {
	command := u.ready.program + " gateway up --listen localhost:8081"
	if connect != "" {
		return fmt.Errorf("%w by another program; choose another one:\n\n  %s --connect %s", cause, command, connect)
	}
	_, port, _ := net.SplitHostPort(listen)
	base := "http://localhost:" + port
	if server, ok, _ := probe.search(ctx, []string{base}); ok {
		return fmt.Errorf("%w by a model server; serve the gateway on another one:\n\n  %s --connect %s", cause, command, server.base)
	}
	return fmt.Errorf("%w by another program, maybe another `caddy gateway up`; end that one, or choose another port:\n\n  %s", cause, command)
}

// startScripted serves the scripted model on a loopback port.
func (u *up) startScripted(ctx context.Context, probe prober) (modelServer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return modelServer{}, fmt.Errorf("starting the scripted model: %w", err)
	}
	u.scripted = &http.Server{Handler: scripted.New(scripted.Options{}), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = u.scripted.Serve(ln) }() // ends with stop
	u.ready.Scripted = true
	server, err := probe.ask(ctx, "http://"+ln.Addr().String())
	if err != nil {
		return modelServer{}, fmt.Errorf("starting the scripted model: %w", err)
	}
	return server, nil
}

// startGateway runs Caddy with our configuration.
func (u *up) startGateway() error {
	database := upDatabase()
	config, err := adaptCaddyfile(u.addresses.caddyfile(database))
	if err != nil {
		return err
	}
	u.store, err = acquire(stores, database, func() *storeHandle {
		return newStoreHandle(database, slog.New(slog.NewTextHandler(u.messages, &slog.HandlerOptions{Level: slog.LevelWarn})))
	})
	if err != nil {
		return err
	}
	u.store.val.welcomed.Store(true) // the link is part of what we print ourselves
	if err := caddy.Load(config, true); err != nil {
		return fmt.Errorf("starting the gateway: %w", err)
	}
	u.running = true
	return nil
}

// runningApp finds the app of the running configuration.
func runningApp() (*App, error) {
	app, err := caddy.ActiveContext().AppIfConfigured("model_gateway")
	if err != nil {
		return nil, fmt.Errorf("finding the gateway: %w", err)
	}
	return app.(*App), nil
}

// startConnector runs a connector in this process, as `connector run` would,
// and waits until its tunnel is up.
func (u *up) startConnector(ctx context.Context, hub *tunnel.Hub, local upAccount, server modelServer) (id string, err error) {
	id, token, err := local.connector(ctx)
	if err != nil {
		return "", err
	}
	config := config.Config{
		TunnelToken: token,
		Upstreams:   map[string]config.Upstream{upName: {BaseURL: server.base + "/v1"}},
	}
	logger := slog.New(slog.NewTextHandler(u.messages, &slog.HandlerOptions{Level: slog.LevelWarn}))
	a, err := agent.New(config, agent.Options{
		Logger: logger, Version: version.Number(), DrainTimeout: agentGrace,
		Keep: local.keep(context.WithoutCancel(ctx), id),
	})
	if err != nil {
		return "", fmt.Errorf("configuring the connector: %w", err)
	}
	// Not of ctx: stop ends it, and before the gateway.
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

// wait blocks until ctx ends, or the connector by itself, which is an error but
// for one that somebody has removed: the gateway may have others.
func (u *up) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-u.agentDone:
		var fatal *agent.FatalError
		switch {
		case errors.As(err, &fatal):
			fmt.Fprintf(u.messages, "Warning: this process has no connector any more: %s. The gateway goes on; start this command anew for another connector.\n", fatal.Reason)
			<-ctx.Done()
			return nil
		case err == nil:
			err = errors.New("it stopped")
		}
		return fmt.Errorf("running the connector: %w", err)
	}
}

// stop ends what start began. The connector goes first: it drains, so that
// requests that run may still end, while the gateway takes their answers.
func (u *up) stop() {
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
			fmt.Fprintln(u.messages, "Warning: stopping the gateway: "+err.Error())
		}
	}
	if err := u.store.release(); err != nil {
		fmt.Fprintln(u.messages, "Warning: closing the database: "+err.Error())
	}
	if u.scripted != nil {
		_ = u.scripted.Close()
	}
}
