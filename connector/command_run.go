package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/service"
)

const runLong = `Connects to the gateway and serves its requests until SIGINT (Ctrl-C) or SIGTERM.
Running requests then have 30 seconds to finish; a second signal stops at once.
SIGHUP, or ` + "`connector reload`" + `, reloads the configuration.

The configuration is a JSON object:

  { "tunnel_token": "…", "upstream": "http://localhost:11434" }

` + "`connector pair`" + ` writes it, and --config is then not needed. Otherwise, create the
token on the gateway's machine with ` + "`caddy gateway connector create --name NAME`" + `.
The upstream is a base URL; /v1 may be left out. Optional fields: "server" (host:port,
overrides the token's), "transport" ("auto", "quic" or "websocket"), "api_key_file" (contains the
upstream's API key), "max_requests" (concurrent requests, default 1024), "max_memory" (for
requests, like "256MiB"), "kept_prompts" (memory for recent prompts, so that they need not
be sent again, default "32MiB"), "allow" (requests that may reach the upstreams in addition
to the gateway's own, like "POST /v1/moderations").

Several upstreams, with routes by model name; the first match wins:

  { "tunnel_token": "…",
    "upstreams": { "ollama": { "base_url": "http://localhost:11434" },
                   "vllm":   { "base_url": "http://10.0.0.5:8000", "api_key_file": "vllm.key" } },
    "routes": [ { "model": "qwen*", "upstream": "ollama", "upstream_model": "qwen3:8b" },
                { "model": "*",     "upstream": "vllm" } ] }

Missing values are read from the environment: TUNNEL_TOKEN or TUNNEL_TOKEN_FILE, and
UPSTREAM.

The connector retries until the gateway is reachable. It exits with code 78 and a hint
if it was removed on the gateway. Before its first connection it also does so if the
gateway rejects the token, or is not the gateway that created it.`

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
			logger, err := newLogger(sys.stderr, logFormat, logLevel)
			if err != nil {
				return err
			}
			if o.drain < 0 {
				return fmt.Errorf("--drain-timeout: %v is negative; use something like 30s, or 0s to stop at once", o.drain)
			}
			if o.config == "" {
				if o.config = sys.pairedConfig(); o.config != "" {
					logger.Info("using the configuration written by connector pair", "config", o.config)
				}
			}
			return serve(command, sys, o, logger)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&o.config, "config", "c", "",
		"configuration `FILE` (default: the file written by `connector pair`, or only the environment)")
	flags.DurationVar(&o.drain, "drain-timeout", defaultDrain, "`TIME` for running requests to finish on shutdown")
	flags.StringVar(&o.metrics, "metrics-listen", "",
		"`HOST:PORT` for /healthz, /readyz and /metrics, like 127.0.0.1:9464 (default: none)")
	flags.String(strings.TrimPrefix(service.NameFlag, "--"), "", "") // read by start
	_ = flags.MarkHidden(strings.TrimPrefix(service.NameFlag, "--")) // the flag exists
	socketFlag(command, &o.socket)
	logFlags(command, &logFormat, &logLevel)
	return command
}

// pairedConfigs returns the files that pairings write by default: for this user, and for this
// machine.
func (sys system) pairedConfigs() []string {
	return slices.DeleteFunc([]string{config.DefaultPath(sys.getenv), sys.config},
		func(path string) bool { return path == "" })
}

// writtenConfig returns the first file of pairedConfigs that exists.
func (sys system) writtenConfig() string {
	for _, path := range sys.pairedConfigs() {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			return path
		}
	}
	return ""
}

// pairedConfig returns the file that `connector run` reads without --config. It is "" if the
// environment contains a token.
func (sys system) pairedConfig() string {
	if sys.tokenInEnvironment() {
		return ""
	}
	return sys.writtenConfig()
}

func (sys system) tokenInEnvironment() bool {
	return sys.getenv("TUNNEL_TOKEN") != "" || sys.getenv("TUNNEL_TOKEN_FILE") != ""
}

// missingConfigs returns the end of an error: none of the files of pairedConfigs exists.
func (sys system) missingConfigs() string {
	paths := sys.pairedConfigs()
	if len(paths) == 0 {
		return ""
	}
	return ": there is no " + strings.Join(paths, " and no ")
}

// load loads a configuration. If path is "", it takes all of it from the environment, and its
// errors name the missing files.
func (sys system) load(path string) (config.Loaded, error) {
	loaded, err := config.Load(path, sys.getenv)
	if err == nil || path != "" {
		return loaded, err
	}
	missing := ""
	if !sys.tokenInEnvironment() {
		missing = sys.missingConfigs()
	}
	return loaded, fmt.Errorf("%w\nNo --config FILE was given either%s; see `connector run --help`", err, missing)
}
