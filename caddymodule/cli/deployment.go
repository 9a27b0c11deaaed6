package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/connector/text"
)

var deploymentCommands = command{
	use: "deployment", short: "Sets, lists and removes deployments",
	aliases: []string{"model"},
	commands: []command{{
		use: "set NAME [--connector ID_OR_NAME …] [--add-connector ID_OR_NAME] [--upstream UPSTREAM] [--model MODEL] " +
			"[--kind KIND] [--also-as NAME …] [--fallback NAME] [--max-concurrency N] [--option NAME=VALUE …] [--reset NAME …]",
		operation: "PUT /deployments/{name}",
		long: `Publishes a model, or changes its route. New requests use the new route at once;
running ones finish on the old route.

Anything you leave out stays as it is; --reset restores its default. A new
deployment needs a connector. --connector replaces the previous connectors; the
command prints what it replaced.

By default, the connector's own routes choose the upstream and the model; a connector
without routes uses its only upstream, and the public name there.

With several connectors, a conversation stays with one of them, and requests
otherwise go to the least busy one; offline ones are skipped. The model must have
the same name on all of them.

--kind is what the model is for: chat, or embeddings for one that returns vectors. It
serves only requests of its kind.

The names of --also-as replace the previous ones. Keys need the public name in their scope.

--max-concurrency limits the running requests at each model server. Further requests queue,
shared fairly among keys. Set it to the server's slots (llama.cpp: -np, Ollama:
OLLAMA_NUM_PARALLEL); without it, keys do not take turns.

--option adjusts the gateway to a particular model server:

` + optionsHelp(),
		example: `  caddy gateway deployment set qwen3:8b --connector workstation
  caddy gateway deployment set qwen3:8b --connector workstation --connector rack --max-concurrency 8
  caddy gateway deployment set qwen3:8b --add-connector rack
  caddy gateway deployment set qwen3:8b --max-concurrency 4 --reset upstream
  caddy gateway deployment set r1 --connector rack --option think_tags=true --option reasoning=true
  caddy gateway deployment set assistant --connector rack --upstream vllm --model Qwen/Qwen3-32B
  caddy gateway deployment set qwen3:8b --also-as "claude-*" --also-as gpt-4o --fallback assistant
  caddy gateway deployment set bge-m3 --connector rack --kind embeddings`,
		flags: func(f *pflag.FlagSet) {
			f.StringArray("reset", nil,
				resetNames+" or an option: back to its default (may be repeated)")
		},
		prepare: prepareDeployment,
		print: show(func(in *invocation, d manage.Deployment) {
			through := make([]string, len(d.Through))
			for i, l := range d.Through {
				through[i] = fmt.Sprintf("%s (%s)", text.Line(l.Name), l.State)
			}
			in.printf("Published %s on %s.\n", d.Name, strings.Join(through, ", "))
			for _, name := range slices.Sorted(maps.Keys(d.Replaced)) {
				in.printf("It replaced %s: %s\n", name, text.Line(d.Replaced[name]))
			}
			if d.Replaced["connectors"] != "" {
				in.printf("To keep both connectors, use --add-connector.\n")
			}
			if d.Warning != "" {
				in.warnf("Warning: %s\n", d.Warning)
			}
		}),
	}, {
		use: "list", operation: "GET /deployments", example: "  caddy gateway deployment list",
		print: list[manage.Deployment]{
			columns: "NAME, ALSO AS, KIND, STATE, RUNNING, QUEUED, WINDOW, CONNECTOR, UPSTREAM, MODEL, FALLBACK, MAX, " +
				"OPTIONS, UPDATED",
			cells: cells[manage.Deployment]{
				"STATE": func(in *invocation, d manage.Deployment) string {
					if d.OfflineSince == nil {
						return d.StateText()
					}
					return d.StateText() + " since " + in.env.date(*d.OfflineSince)
				},
				"ALSO AS": func(_ *invocation, d manage.Deployment) string { return strings.Join(d.AlsoAs, ", ") },
				"CONNECTOR": func(_ *invocation, d manage.Deployment) string {
					return strings.Join(d.ConnectorNames(), ", ")
				},
			},
			empty: "No deployments yet. Publish a model with `caddy gateway deployment set NAME --connector ID_OR_NAME`.",
			notes: func(in *invocation, deployments []manage.Deployment) {
				for _, d := range deployments {
					if d.Warning != "" {
						in.warnf("Warning: %s: %s\n", d.Name, d.Warning)
					}
					if d.Suggestion != "" {
						in.warnf("Suggestion: %s: %s\n", d.Name, d.Suggestion)
					}
				}
			},
		}.print,
	}, {
		use: "measure NAME", operation: "POST /deployments/{name}/measure",
		long: `Measures the context window of a model: sends one prompt of 1.2 MB through each
connector, and reads the window from the answer. Most servers refuse it at once. One
that cuts prompts works on half a window, and one with a very large window on all of
it. The measurement ends after five minutes.`,
		example: "  caddy gateway deployment measure qwen3:8b",
		print: show(func(in *invocation, all []manage.Measurement) {
			for _, m := range all {
				in.printf("Connector %q: %s.\n", text.Line(m.Connector), text.Line(m.Text))
			}
		}),
	}, {
		use: "remove NAME", operation: "DELETE /deployments/{name}",
		example: `  caddy gateway deployment remove qwen3:8b`,
		print: show(func(in *invocation, d manage.Deployment) {
			in.printf("Deployment %q is removed.\n", d.Name)
		}),
	}},
}

// prepareDeployment adds the options of --option and --reset to a request. Empty flags and
// --max-concurrency 0 change nothing: an unset variable of a script must not reset a field.
func prepareDeployment(in *invocation, r *request) error {
	if connectors, _ := in.Flags().GetStringArray("connector"); slices.Contains(connectors, "") {
		return up.Usagef("--connector is empty; for example: caddy gateway deployment set %s --connector workstation", in.arg)
	}
	maps.DeleteFunc(r.body, func(_ string, value any) bool { return value == "" || value == 0 })
	options := map[string]any{}
	given, _ := in.Flags().GetStringArray("option")
	for _, assignment := range given {
		var o compat.Options
		if err := o.Parse(assignment); err != nil {
			return up.Usagef("--option: %w", err)
		}
		name, _, _ := strings.Cut(assignment, "=")
		option, _ := compat.Find(name) // it was parsed
		options[name] = option.JSON(option.Value(o))
	}
	reset, _ := in.Flags().GetStringArray("reset")
	for _, name := range reset {
		if err := resetField(r.body, options, name); err != nil {
			return err
		}
	}
	if len(options) > 0 {
		r.set("options", options)
	}
	return nil
}

// resetNames are the fields that --reset knows.
const resetNames = "upstream, model, kind, also-as, fallback, max-concurrency"

// resetField sets a field or an option to its default, unless another flag sets it.
func resetField(body, options map[string]any, name string) error {
	member := strings.ReplaceAll(name, "-", "_")
	_, field := body[member]
	if _, option := options[name]; field || option {
		return up.Usagef("--reset: %s is given twice", name)
	}
	if empty, ok := map[string]any{
		"upstream": "", "model": "", "kind": "", "also-as": []string{}, "fallback": "", "max-concurrency": 0,
	}[name]; ok {
		body[member] = empty
		return nil
	}
	o, err := compat.Find(name)
	if err != nil {
		return up.Usagef("--reset: unknown name %.80q; the names are %s, %s", name, resetNames,
			strings.Join(compat.Names(), ", "))
	}
	options[name] = o.JSON(o.Values[0])
	return nil
}

// optionsHelp returns the help of the options.
func optionsHelp() string {
	var b strings.Builder
	for i, o := range compat.All() {
		if i > 0 {
			b.WriteByte('\n')
		}
		values := strings.Join(o.Values, "|")
		if o.Form != "" {
			values = "VALUE"
		}
		fmt.Fprintf(&b, "  %s=%s (default %s)\n      %s", o.Name, values, o.Values[0], o.Help)
	}
	return b.String()
}
