package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/doctor"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/tty"
)

// pairFlags are the flags of the pair command.
type pairFlags struct {
	upstream, config, pin, ca, name, server string
	noRun, force, oneModel                  bool
	logFormat, logLevel                     string
}

func pairCommand(sys system) *cobra.Command {
	var f pairFlags
	command := &cobra.Command{
		Use:   "pair SERVER_URL CODE --upstream URL",
		Short: "Pair this machine with a gateway, using a pairing code",
		Long: `Asks the gateway to accept this machine as a connector, waits until someone
approves it, saves the token in the configuration file, and continues as
` + "`connector run`" + `.

The code comes from "Start pairing" in the gateway's console, or on the gateway's machine
with ` + "`caddy gateway pairing start`" + `. It works once and expires after 15 minutes.
Compare the fingerprint printed here with the one in the console, and approve the
device if they match.

The address of the tunnels is requested from the gateway over HTTPS. A certificate of
a private authority is verified with --ca. With the gateway's --pin, neither HTTPS nor
a valid certificate is needed; without both, this only works on the same machine.

Upstreams and routes that are already in the configuration file are kept, and
--upstream can be omitted. It can also be set in the environment: UPSTREAM.

Exit codes: 0 success, 1 failure, 2 invalid flags or configuration, 3 not paired
(the code is unknown, expired or used, or the device was denied), 4 already paired,
78 as for ` + "`connector run`" + `.`,
		Example: `  connector pair https://gateway.example.com PAIR-XXXX-XXXX --upstream http://localhost:11434
  connector pair https://gateway.internal PAIR-XXXX-XXXX --ca root.crt --upstream http://localhost:11434
  connector pair http://192.168.1.2:8080 PAIR-XXXX-XXXX --pin PIN --upstream http://localhost:8000 --no-run`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("give the gateway's URL and the pairing code, like: " +
					"connector pair https://gateway.example.com PAIR-XXXX-XXXX --upstream http://localhost:11434")
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			logger, err := newLogger(sys.stderr, f.logFormat, f.logLevel)
			if err != nil {
				return err
			}
			r := &pairingReporter{logger: logger}
			if f.logFormat == "auto" && tty.Is(sys.stderr) {
				r.w = sys.stderr
			}
			gatewayURL, code := args[0], args[1]
			if strings.HasPrefix(strings.ToUpper(gatewayURL), "PAIR-") { // in the wrong order
				gatewayURL, code = code, gatewayURL
			}
			return pair(command, sys, gatewayURL, code, f, logger, r)
		},
	}
	f.flags(command)
	return command
}

// flags adds the flags to the command.
func (f *pairFlags) flags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVarP(&f.upstream, "upstream", "u", "",
		"base `URL` of the model server, like http://localhost:11434; /v1 may be left out")
	flags.StringVarP(&f.config, "config", "c", "",
		"configuration `FILE` to write (default: postern/connector.json in your configuration folder)")
	flags.StringVar(&f.pin, "pin", "",
		"`PIN` expected of the gateway, instead of a valid certificate; shown on the gateway's machine with "+
			"\"caddy gateway status\"")
	flags.StringVar(&f.ca, "ca", "", "`FILE` with a certificate authority to trust in addition to the system's (PEM)")
	flags.StringVar(&f.name, "name", "", "`NAME` of this machine in the console (default: its host name)")
	flags.StringVar(&f.server, "server", "", "`HOST:PORT` of the gateway's tunnels, instead of the published address")
	flags.BoolVar(&f.oneModel, "one-model", false,
		"the model server loads one model at a time: requests for its models take turns")
	flags.BoolVar(&f.noRun, "no-run", false, "exit after writing the configuration")
	flags.BoolVar(&f.force, "force", false, "replace an existing token in the configuration")
	logFlags(command, &f.logFormat, &f.logLevel)
}

// pair pairs this machine and then continues as the run command.
func pair(
	command *cobra.Command, sys system, gatewayURL, code string, f pairFlags, logger *slog.Logger, r *pairingReporter,
) error {
	path := cmp.Or(f.config, config.DefaultPath(sys.getenv))
	if path == "" {
		return errors.New("no folder for configurations: HOME is not set; give --config FILE")
	}
	slog.SetDefault(logger) // some libraries log there
	store := &config.Store{Path: path, Force: f.force}
	c, err := pairConfig(store, sys, f)
	if err != nil {
		return err
	}
	discovery, err := dial.NewDiscovery(gatewayURL, dial.DiscoveryOptions{Pin: f.pin, Server: c.Server, CA: f.ca})
	if err != nil {
		return err
	}
	ctx, stop := sys.signals(command.Context())
	defer stop()
	err = doctor.Models(ctx, c.Anchored(filepath.Dir(path)), func(f doctor.Finding) {
		if f.Result == doctor.ResultFailed { // the server may be started later
			r.warn(f.Detail + "; " + f.Fix)
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	// A token that cannot be saved later would be lost.
	if err := store.Prepare(); err != nil {
		return failed(err)
	}
	if err := obtain(ctx, discovery, code, f.name, store, c, r); err != nil {
		return err
	}
	if f.noRun {
		return nil
	}
	stop() // serve handles signals itself
	return serve(command, sys, runOptions{config: path, drain: defaultDrain}, logger)
}

// pairConfig returns the configuration to save, without the token.
func pairConfig(store *config.Store, sys system, f pairFlags) (config.Config, error) {
	c, err := store.Load()
	if errors.Is(err, config.ErrPaired) {
		return c, &exitError{exitPaired, fmt.Errorf("%w; start it with `connector run --config %s`, or give --force to pair "+
			"it again, or another file with --config", err, store.Path)}
	}
	if err != nil {
		return c, err
	}
	if c.TunnelToken != "" {
		c.Server = "" // of the old token's gateway
	}
	c.Server = cmp.Or(f.server, c.Server)
	switch {
	case f.upstream != "" && len(c.Upstreams) > 0:
		return c, fmt.Errorf("--upstream: %s already has upstreams; omit --upstream to keep them, or name another file "+
			"with --config", store.Path)
	case f.upstream != "" && f.upstream != c.Upstream:
		c.Upstream, c.APIKeyFile, c.OneModelAtATime = f.upstream, "", false // those of the old server
	case c.Upstream == "" && len(c.Upstreams) == 0:
		c.Upstream = sys.getenv("UPSTREAM")
	}
	if c.Upstream == "" && len(c.Upstreams) == 0 {
		return c, errors.New("--upstream: missing; give the address of the model server, like --upstream " +
			"http://localhost:11434")
	}
	if f.oneModel && len(c.Upstreams) > 0 {
		return c, fmt.Errorf("--one-model: %s already has upstreams; write \"one_model_at_a_time\": true into one of them",
			store.Path)
	}
	c.OneModelAtATime = c.OneModelAtATime || f.oneModel
	return c, c.ValidateUpstreams()
}

// obtain pairs with the gateway and saves the token.
func obtain(
	ctx context.Context, discovery *dial.Discovery, code, name string, store *config.Store, c config.Config,
	r *pairingReporter,
) error {
	gateway, err := discovery.Find(ctx)
	if err != nil {
		return failed(stopped(ctx, err, "the code is still valid"))
	}
	r.found(discovery.Origin(), gateway)
	pending := false
	token, err := agent.Pair(ctx, agent.PairOptions{
		Server: gateway.Server, URL: gateway.URL, Pin: gateway.Pin, Code: code, Name: name,
		Upstreams: c.UpstreamNames(),
		Pending: func(p link.Pending) {
			pending = true
			r.pending(p, gateway.Console)
		},
		Interrupted: r.interrupted,
	})
	if err != nil {
		return explainPairing(ctx, err, gateway, pending)
	}
	c.TunnelToken = token
	if err := store.Save(c); err != nil {
		return failed(fmt.Errorf("this machine was approved, but its token could not be saved: %w; remove the connector on "+
			"the gateway and pair again", err))
	}
	r.paired(store.Path)
	return nil
}

// explainPairing adds the cause and the fix to the error of a failed pairing.
func explainPairing(ctx context.Context, err error, gateway dial.Gateway, pending bool) error {
	start := "create a new one with Start pairing in the console"
	if gateway.Console != "" {
		start += " (" + gateway.Console + ")"
	}
	var deny link.Deny
	switch {
	case errors.As(err, &deny):
		return &exitError{exitRefused, errors.New(refusal(deny, start))}
	case errors.Is(err, link.ErrPin):
		return failed(fmt.Errorf("the server at %s is not the gateway that published this address: its pin is different; "+
			"check --server, and proxies between this machine and the gateway", gateway.Server))
	case errors.Is(err, agent.ErrUnreachable):
		return failed(fmt.Errorf("%w; check that UDP can reach it", err))
	case pending:
		return failed(stopped(ctx, err, "the code is bound to this attempt: deny it in the console, and "+start))
	default:
		return failed(stopped(ctx, err, "the code may still be valid"))
	}
}

// refusal returns the error message for a denied pairing.
func refusal(deny link.Deny, start string) string {
	switch deny.Code {
	case link.DenyPairingUnknown:
		return "unknown pairing code: compare it with the one in the console, or " + start
	case link.DenyPairingExpired:
		return "the code expired before the device was approved; " + start
	case link.DenyPairingUsed:
		return "the code was already used, by another device or by an attempt that was stopped; " + start
	case link.DenyPairingDenied:
		return "this device was denied on the gateway; if that was a mistake, " + start
	case link.DenyPairingOff:
		return "pairing is disabled on this gateway; create a token on the gateway's machine with " +
			"`caddy gateway connector create`, and put it into the configuration"
	default:
		return fmt.Sprintf("the gateway refused to pair this device: %s (%s)", deny.Message, deny.Code)
	}
}

// stopped replaces err if the command was interrupted.
func stopped(ctx context.Context, err error, next string) error {
	if ctx.Err() == nil {
		return err
	}
	return errors.New("stopped before this machine was paired; " + next)
}
