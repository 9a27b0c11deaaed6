package caddymodule

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// upCommand builds `caddy gateway up`.
func upCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up [--connect URL] [--listen ADDRESS]",
		Short: "Runs a gateway and a connector on this machine, in one process",
		Long: `Runs everything on this machine in one process: the gateway on localhost, and a
connector to a model server. It registers the server's models and prints an API
key, a request to paste and a link to the web console.

The model server is the one that --connect names, else the first that answers on
one of the usual ports (11434, 8080, 1234, 8000). If there is none, a built-in
scripted model takes its place: it streams like a real one, but only ever says
that it is none.

Nothing listens on other addresses than loopback. Keys and deployments are kept
in up.db in Caddy's data directory; each run makes a new key "up" and removes
the one of the last run.`,
		Example: `  caddy gateway up
  caddy gateway up --connect http://localhost:11434
  caddy gateway up --listen localhost:8081 --connect http://192.168.1.20:8000`,
	}
	takes(cmd)
	cmd.Flags().String("connect", "", "Base URL of the model server (default: search this machine)")
	cmd.Flags().String("listen", "", "Where the gateway serves HTTP, on loopback (default \""+defaultUpListen+"\")")
	cmd.Flags().Bool("json", false, "Print what is running as JSON instead of text")
	runs(cmd, runUp)
	return cmd
}

// runUp is one run of `caddy gateway up`, until Ctrl-C.
func runUp(cmd *cobra.Command, _ []string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	u := &up{
		connect: flagValue(cmd, "connect"), listen: flagValue(cmd, "listen"),
		search: probeBases(), messages: cmd.ErrOrStderr(),
		ready: upReady{program: commandName(os.Args[0])},
	}
	defer u.stop()
	ready, err := u.start(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // interrupted while starting
		}
		return err
	}
	if wantsJSON(cmd) {
		if err := printJSON(cmd.OutOrStdout(), ready); err != nil {
			return err
		}
	} else {
		ready.print(cmd.OutOrStdout())
	}
	err = u.wait(ctx)
	stop() // from here on, a second Ctrl-C ends the process at once
	fmt.Fprintln(cmd.ErrOrStderr(), "Stopping.")
	return err
}

// upReady is what `caddy gateway up` prints once everything runs.
type upReady struct {
	URL         string   `json:"url"`
	ModelServer string   `json:"model_server"` // base URL
	Scripted    bool     `json:"scripted"`     // it is the built-in one
	Models      []string `json:"models"`       // public names
	Key         string   `json:"key"`
	Console     string   `json:"console"` // the one-time link for the first user, else the address
	Admin       string   `json:"admin"`   // address of the admin endpoint
	Curl        string   `json:"curl"`
	Notes       []string `json:"notes,omitempty"`

	program    string // how this one is started
	usualAdmin bool   // the commands find it without --address
	setup      bool   // Console is the link for the first user
}

// curl is a request that works when pasted into a shell. Public model names
// hold no character that a shell or JSON would take amiss.
func (r *upReady) curl() string {
	return fmt.Sprintf(`curl -N %s/v1/chat/completions -H "Authorization: Bearer %s" -H "Content-Type: application/json" `+
		`-d '{"model":"%s","stream":true,"messages":[{"role":"user","content":"Say hello."}]}'`, r.URL, r.Key, chatModel(r.Models))
}

// chatModel picks a model for the sample request: the first that does not
// look like one for embeddings.
func chatModel(models []string) string {
	for _, m := range models {
		if !strings.Contains(strings.ToLower(m), "embed") {
			return m
		}
	}
	return models[0]
}

// shownModels bounds the list of models on the terminal.
const shownModels = 12

func (r *upReady) print(w io.Writer) {
	models := strings.Join(r.Models[:min(len(r.Models), shownModels)], ", ")
	if more := len(r.Models) - shownModels; more > 0 {
		models += fmt.Sprintf(" and %d more", more)
	}
	server, address := r.ModelServer, ""
	if r.Scripted {
		server = "none found: the built-in scripted model answers instead.\n" +
			"                It is not a real model. Start one (for example Ollama) and run this again."
	}
	if !r.usualAdmin {
		address = " --address " + r.Admin
	}
	console := r.Console
	if r.setup {
		console += "\n                (makes the first user; works once, for 15 minutes)"
	}
	fmt.Fprintf(w, `The gateway is running.

  Model server  %s
  Models        %s
  API           %s/v1
  Key           %s
  Console       %s
  Manage        %s gateway status%s

Try it:

  %s

`, server, models, r.URL, r.Key, console, r.program, address, r.curl())
	for _, note := range r.Notes {
		fmt.Fprintln(w, "Note: "+printable(note))
	}
	fmt.Fprintln(w, "Ctrl-C ends it.")
}
