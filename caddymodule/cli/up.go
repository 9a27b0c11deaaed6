package cli

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/program"
	"github.com/postern-dev/postern/connector/text"
)

func upCommand(host up.Host) command {
	return command{
		use:   "up [--connect URL] [--listen ADDRESS] [--cloud]",
		short: "Runs a gateway and a connector on this machine",
		long: `Runs a gateway on localhost and a connector to a model server, in one process. It
publishes the server's models and prints an API key, a request to paste and a link
to the web console. Models that run in a cloud are published only with --cloud.

The model server is that of --connect, or the first that answers on one of the
usual ports (11434, 8080, 1234, 8000). If none answers, a built-in scripted model
is used: it streams like a real one, but always answers that it is not a model.

All addresses are on loopback. Keys and deployments are stored in up.db in Caddy's
data directory, and the printed key in up.key next to it, for later runs. If you
revoke that key, the next run creates another one.`,
		example: `  caddy gateway up
  caddy gateway up --connect http://localhost:11434
  caddy gateway up --listen localhost:8081 --connect http://192.168.1.20:8000`,
		local: true,
		flags: func(f *pflag.FlagSet) {
			f.String("connect", "", "Base URL of the model server (default: search this machine)")
			f.String("listen", "",
				"Where the gateway serves HTTP, on loopback (default: the first free port from localhost:8080)")
			f.Bool("cloud", false, "Publish models that run in a cloud, too, such as glm-5.1:cloud of Ollama")
			f.Bool("json", false, "Print what is running as JSON instead of text")
		},
		run: func(in *invocation) error {
			if err := in.alreadyUp(host); err != nil {
				return err
			}
			return runUp(in, up.New(up.Options{
				Host: host, Connect: in.text("connect"), Listen: in.text("listen"), Cloud: in.is("cloud"),
				Program: os.Args[0], Messages: in.ErrOrStderr(),
			}))
		},
	}
}

// alreadyUp returns an error with the addresses of the `caddy gateway up` that is running, nil if
// none is.
func (in *invocation) alreadyUp(host up.Host) error {
	var status manage.Status
	if in.local = up.Running(); in.local == "" || in.do(in.newRequest("GET /status"), &status) != nil {
		return nil
	}
	return fmt.Errorf(program.Named("`caddy gateway up` is already running:\n\n  API      %s/v1\n  Console  %s%s/\n\n"+
		"Use it, or end it with Ctrl-C in its terminal before you start another one."),
		status.URL, status.URL, host.Console)
}

// runUp runs `caddy gateway up` until Ctrl-C.
func runUp(in *invocation, run *up.Run) error {
	ctx, stop := signal.NotifyContext(in.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer run.Stop()
	ready, err := run.Start(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // interrupted while starting
	case err != nil:
		return err
	case in.is("json"):
		if err := printJSON(in.OutOrStdout(), ready); err != nil {
			return err
		}
	default:
		printReady(in.OutOrStdout(), ready)
	}
	err = run.Wait(ctx)
	stop() // from here on, a second Ctrl-C ends the process at once
	in.warnf("Stopping.\n")
	return err
}

// shownModels bounds the list of models on the terminal.
const shownModels = 12

func printReady(w io.Writer, r *up.Ready) {
	models := strings.Join(r.Models[:min(len(r.Models), shownModels)], ", ")
	if more := len(r.Models) - shownModels; more > 0 {
		models += fmt.Sprintf(" and %d more", more)
	}
	if len(r.Models) > 1 {
		models = fmt.Sprintf("%d found: %s", len(r.Models), models)
	}
	server := r.ModelServer
	if r.Scripted {
		server = "none found: the built-in scripted model answers instead.\n" +
			"                It is not a real model. Start one (for example Ollama) and run this again."
	}
	console := r.Console
	if r.Setup {
		console += "\n                (creates the first user; works once, for 15 minutes)"
	}
	fmt.Fprintf(w, `The gateway is running.

  Model server  %s
  Models        %s
  API           %s/v1
  Key           %s
  Console       %s
  Manage        %s gateway status --address %s

Try it:

  %s

`, server, models, r.URL, r.Key, console, r.Program, text.ShellWord(r.Admin), r.Curl)
	for _, note := range r.Notes {
		fmt.Fprintln(w, "Note: "+text.Line(note))
	}
	fmt.Fprintln(w, "Ctrl-C ends it.")
}
