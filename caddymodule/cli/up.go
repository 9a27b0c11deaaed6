package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/program"
)

func upCommand(host up.Host) command {
	return command{
		use:   "up [--connect URL] [--listen ADDRESS] [--edges N]",
		short: "Runs a gateway, or a cluster, and a connector on this machine",
		long: `Runs a gateway on localhost and a connector to a model server, in one process. It
publishes the server's models and prints an API key, a request to paste and a link
to the web console.

The model server is that of --connect, or the first that answers on one of the
usual ports (11434, 8080, 1234, 8000). If none answers, a built-in scripted model
is used: it streams like a real one, but always answers that it is not a model.

All addresses are on loopback. Keys and deployments are stored in up.db in Caddy's
data directory, and the printed key in up.key next to it, for later runs. If you
revoke that key, the next run creates another one.

With --edges, it runs a cluster: etcd, that many gateways in processes of their own,
and a balancer in front of them at --listen. It prints their process ids, so that you
can kill one of them, and how to start it again. Their stores, logs and Caddyfiles
are in the folder "edges" next to up.db. All of them end with the command.`,
		example: `  caddy gateway up
  caddy gateway up --connect http://localhost:11434
  caddy gateway up --listen localhost:8081 --connect http://192.168.1.20:8000
  caddy gateway up --edges 3`,
		local: true,
		flags: func(f *pflag.FlagSet) {
			f.String("connect", "", "Base URL of the model server (default: search this machine)")
			f.String("listen", "", "Where the gateway serves HTTP, on loopback (default: the first free port from localhost:8080)")
			f.Int("edges", 0, fmt.Sprintf("Run a cluster of that many gateways, %d to %d", up.MinEdges, up.MaxEdges))
			f.String("etcd", "", "The program etcd, 3.6 or later, for --edges (default: etcd in PATH)")
			f.Bool("json", false, "Print what is running as JSON instead of text")
		},
		run: func(in *invocation) error {
			edges, err := in.edges()
			if err != nil {
				return err
			}
			if err := in.alreadyUp(host); err != nil {
				return err
			}
			return runUp(in, up.New(up.Options{
				Host: host, Connect: in.text("connect"), Listen: in.text("listen"), Program: os.Args[0], Messages: in.ErrOrStderr(),
				Edges: edges, Etcd: in.text("etcd"), Call: in.call,
			}))
		},
	}
}

// edges returns the number of gateways of a cluster, 0 for one gateway in this process.
func (in *invocation) edges() (int, error) {
	n, _ := in.Flags().GetInt("edges")
	switch given := in.Flags().Changed("edges"); {
	case given && (n < up.MinEdges || n > up.MaxEdges):
		return 0, up.Usagef("--edges %d: a cluster has %d to %d gateways on one machine; without --edges, one gateway runs", n, up.MinEdges, up.MaxEdges)
	case given && runtime.GOOS == "windows":
		return 0, up.Usagef("--edges does not work on Windows")
	case !given && in.text("etcd") != "":
		return 0, up.Usagef("--etcd is for a cluster: add --edges 3")
	}
	return n, nil
}

// call implements up.Call.
func (in *invocation) call(ctx context.Context, admin, method, path string, body map[string]any, answer any) error {
	in.SetContext(ctx)
	in.local = admin
	return in.do(request{method, path, body}, answer)
}

// alreadyUp returns an error with the addresses of a `caddy gateway up` that is running,
// nil if there is none.
func (in *invocation) alreadyUp(host up.Host) error {
	var status manage.Status
	if in.local = up.Running(); in.local == "" || in.do(request{method: http.MethodGet, path: "/status"}, &status) != nil {
		return nil
	}
	return fmt.Errorf(program.Named("`caddy gateway up` is already running:\n\n  API      %s/v1\n  Console  %s%s/\n\nUse it, or end it with Ctrl-C in its terminal before you start another one."),
		status.URL, status.URL, host.Console)
}

// runUp is one run of `caddy gateway up`, until Ctrl-C.
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
	server, address := r.ModelServer, ""
	if r.Scripted {
		server = "none found: the built-in scripted model answers instead.\n" +
			"                It is not a real model. Start one (for example Ollama) and run this again."
	}
	if !r.UsualAdmin {
		address = " --address " + r.Admin
	}
	console := r.Console
	if r.Setup {
		console += "\n                (creates the first user; works once, for 15 minutes)"
	}
	running := "The gateway is running"
	if n := len(r.Edges); n > 0 {
		running = fmt.Sprintf("A cluster of %d gateways is running, behind a balancer", n)
	}
	fmt.Fprintf(w, `%s.

  Model server  %s
  Models        %s
  API           %s/v1
  Key           %s
  Console       %s
  Manage        %s gateway status%s

Try it:

  %s

`, running, server, models, r.URL, r.Key, console, r.Program, address, r.Curl)
	if len(r.Edges) > 0 {
		printEdges(w, r, address)
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "Note: "+printable(note))
	}
	fmt.Fprintln(w, "Ctrl-C ends it.")
}

// printEdges prints the processes of a cluster, and what to do with them.
func printEdges(w io.Writer, r *up.Ready, address string) {
	rows := [][]string{{"  NAME", "PID", "URL", "ADMIN ENDPOINT"}}
	for _, e := range r.Edges {
		rows = append(rows, []string{"  " + e.Name, strconv.Itoa(e.PID), e.URL, e.Admin})
	}
	rows = append(rows, []string{"  " + r.Etcd.Name, strconv.Itoa(r.Etcd.PID), r.Etcd.URL, ""})
	_ = printTable(w, rows) // as for the rest, a failure is that of the terminal
	second := r.Edges[1]
	fmt.Fprintf(w, `
Their logs are in %s.

Kill one of them, and send the request again:

  kill -9 %d

Only the requests that run through %s fail; the balancer sends new ones to the others.
After 15 seconds, it is lost in the list of `+"`%s gateway edge list%s`"+`.
The command that starts it again is printed here.

`, filepath.Dir(second.Log), second.PID, second.Name, r.Program, address)
}
