package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/agent"
)

func runCommand(sys system) *cobra.Command {
	var configPath, logFormat, logLevel string
	command := &cobra.Command{
		Use:   "run [--config FILE]",
		Short: "Connect to the gateway and serve its requests",
		Long: `Connects to the gateway, and serves its requests until it gets SIGINT (Ctrl-C) or
SIGTERM. Then running requests have 30 seconds to finish; a second signal stops
at once.

The configuration is a JSON object:

  { "tunnel_token": "…", "upstream": "http://localhost:11434" }

` + "`connector pair`" + ` writes it, and then needs no --config here. Otherwise the token comes
from ` + "`caddy gateway connector create --name NAME`" + ` on the gateway.
The upstream has no path; /v1 is added. Optional: "server" (host:port, in place
of the token's), "transport" ("auto" or "quic"), "api_key_file" (holds the key
that the upstream asks for).

Several upstreams, and which model goes to which; the first match wins:

  { "tunnel_token": "…",
    "upstreams": { "ollama": { "BaseUrl": "http://localhost:11434/v1" },
                   "vllm":   { "BaseUrl": "http://10.0.0.5:8000/v1", "api_key_file": "vllm.key" } },
    "routes": [ { "model": "qwen*", "upstream": "ollama", "upstream_model": "qwen3:8b" },
                { "model": "*",     "upstream": "vllm" } ] }

What the file lacks comes from the environment: TUNNEL_TOKEN or TUNNEL_TOKEN_FILE,
and UPSTREAM.`,
		Example: `  connector run --config connector.json
  TUNNEL_TOKEN_FILE=/run/secrets/tunnel UPSTREAM=http://localhost:11434 connector run
  connector run --config connector.json --log-format json --log-level debug`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			logger, err := newLogger(sys.stderr, logFormat, logLevel)
			if err != nil {
				return err
			}
			if configPath == "" {
				if configPath = pairedConfig(sys.getenv); configPath != "" {
					logger.Info("using the configuration of a pairing", "config", configPath)
				}
			}
			return serve(command, sys, configPath, logger)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&configPath, "config", "c", "", "configuration `FILE` (default: what the command pair wrote, or the environment alone)")
	logFlags(command, &logFormat, &logLevel)
	return command
}

// pairedConfig returns the file that the command pair writes, if it is there. A
// token in the environment is one that somebody has set for this very run, and
// comes first.
func pairedConfig(getenv func(string) string) string {
	path := agent.DefaultConfigPath(getenv)
	if path == "" || getenv("TUNNEL_TOKEN") != "" || getenv("TUNNEL_TOKEN_FILE") != "" {
		return ""
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return path
}

// serve runs the connector until a signal or an end of the command's context.
func serve(command *cobra.Command, sys system, configPath string, logger *slog.Logger) error {
	loaded, err := agent.LoadConfig(configPath, sys.getenv)
	if err != nil {
		if configPath == "" {
			return fmt.Errorf("%w\nThere is no --config FILE either; see `connector run --help`", err)
		}
		return err
	}
	// Libraries write to the standard logger, where it is their only way.
	slog.SetDefault(logger)
	for _, warning := range loaded.Warnings {
		logger.Warn(warning)
	}
	connector, err := agent.New(loaded.Config, agent.Options{Logger: logger, Version: programVersion()})
	if err != nil {
		return err
	}
	signalled, stop := sys.signals(command.Context())
	defer stop()
	ctx, cancel := context.WithCancel(command.Context())
	defer cancel()
	finished := make(chan error, 1)
	go func() { finished <- connector.Run(ctx) }()
	select {
	case err = <-finished:
	case <-signalled.Done():
		stop() // the next signal is not caught any more
		logger.Info("stopping; another signal stops at once")
		cancel()
		err = <-finished
	}
	if err != nil {
		return &runtimeError{err}
	}
	return nil
}
