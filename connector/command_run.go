package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/service"
)

const runLong = `Connects to the gateway, and serves its requests until it gets SIGINT (Ctrl-C) or
SIGTERM. Then running requests have 30 seconds to finish; a second signal stops
at once. SIGHUP, or ` + "`connector reload`" + `, makes it read its configuration again.

The configuration is a JSON object:

  { "tunnel_token": "…", "upstream": "http://localhost:11434" }

` + "`connector pair`" + ` writes it, and then needs no --config here. Otherwise the token comes
from ` + "`caddy gateway connector create --name NAME`" + ` on the gateway.
The upstream has no path; /v1 is added. Optional: "server" (host:port, in place
of the token's), "transport" ("auto", "quic" or "websocket"), "api_key_file" (holds the key
that the upstream asks for), "max_requests" (how many run at a time, 1024), "allow" (requests
that may reach the upstreams in addition to those that the gateway needs, like "POST /v1/rerank").

Several upstreams, and which model goes to which; the first match wins:

  { "tunnel_token": "…",
    "upstreams": { "ollama": { "BaseUrl": "http://localhost:11434/v1" },
                   "vllm":   { "BaseUrl": "http://10.0.0.5:8000/v1", "api_key_file": "vllm.key" } },
    "routes": [ { "model": "qwen*", "upstream": "ollama", "upstream_model": "qwen3:8b" },
                { "model": "*",     "upstream": "vllm" } ] }

What the file lacks comes from the environment: TUNNEL_TOKEN or TUNNEL_TOKEN_FILE,
and UPSTREAM.

When the gateway rotates the token, the connector puts the new one into the file, and
changes nothing else in it. A file that is marked as read-only is left alone.

A gateway that is away is tried until it is back. The command ends by itself,
with the exit code 78 and what to do, when the connector was removed on the gateway;
and, if it has never been online, when the gateway does not accept the token, or is
not the gateway that created it.`

func runCommand(sys system) *cobra.Command {
	var o runOptions
	var logFormat, logLevel string
	command := &cobra.Command{
		Use:   "run [--config FILE]",
		Short: "Connect to the gateway and serve its requests",
		Long:  runLong,
		Example: `  connector run --config connector.json
  TUNNEL_TOKEN_FILE=/run/secrets/tunnel UPSTREAM=http://localhost:11434 connector run
  connector run --config connector.json --log-format json --log-level debug
  connector run --metrics-listen 127.0.0.1:9464`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			logger, screen, err := newDisplay(command, sys, logFormat, logLevel)
			if err != nil {
				return err
			}
			o.screen = screen
			if o.drain < 0 {
				return fmt.Errorf("--drain-timeout: %v is negative; use something like 30s, or 0s to stop at once", o.drain)
			}
			if o.config == "" {
				if o.config = pairedConfig(sys.getenv); o.config != "" {
					logger.Info("using the configuration of a pairing", "config", o.config)
				}
			}
			return serve(command, sys, o, logger)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&o.config, "config", "c", "", "configuration `FILE` (default: the file of `connector pair`, or the environment alone)")
	flags.DurationVar(&o.drain, "drain-timeout", defaultDrain, "`TIME` that running requests have to finish when it stops")
	flags.StringVar(&o.metrics, "metrics-listen", "", "`HOST:PORT` for /healthz, /readyz and /metrics, like 127.0.0.1:9464 (default: none)")
	flags.String(strings.TrimPrefix(service.NameFlag, "--"), "", "") // see start
	_ = flags.MarkHidden(strings.TrimPrefix(service.NameFlag, "--")) // it is there
	socketFlag(command, &o.socket)
	logFlags(command, &logFormat, &logLevel)
	return command
}

// pairedConfig returns the file that the command pair writes, if it is there. A
// token in the environment is set for this very run, and comes first.
func pairedConfig(getenv func(string) string) string {
	path := config.DefaultPath(getenv)
	if path == "" || getenv("TUNNEL_TOKEN") != "" || getenv("TUNNEL_TOKEN_FILE") != "" {
		return ""
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return ""
	}
	return path
}
