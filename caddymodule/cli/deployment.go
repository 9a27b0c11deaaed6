package cli

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/manage"
)

var deploymentCommands = command{
	use: "deployment", short: "Sets, lists and removes deployments",
	aliases: []string{"model"},
	commands: []command{{
		use: "set NAME [--connector ID_OR_NAME …] [--add-connector ID_OR_NAME] [--upstream UPSTREAM] [--model MODEL] " +
			"[--kind KIND] [--max-concurrency N] [--option NAME=VALUE …] [--reset NAME …]",
		short: "Publishes a model, or changes its route",
		long: `Publishes a model, or changes its route. New requests use the new route at once;
running ones finish on the old route.

Anything you leave out stays as it is; --reset puts it back to its default. A new
deployment needs a connector.

By default the connector's own routes decide about upstream and model; a connector
without routes uses its only upstream, and the public name there.

With several connectors, a conversation stays with one of them, and requests
otherwise go to the least busy one; offline ones are skipped. The model must have
the same name on all of them.

--kind is what the model is for: chat, or embeddings for one that returns vectors. It
serves requests of its kind alone.

--max-concurrency limits the running requests. More are queued, fairly between
keys.

--option adjusts the gateway to a particular model server:

` + optionsHelp(),
		example: `  caddy gateway deployment set qwen3:8b --connector workstation
  caddy gateway deployment set qwen3:8b --connector workstation --connector rack --max-concurrency 8
  caddy gateway deployment set qwen3:8b --add-connector rack
  caddy gateway deployment set qwen3:8b --max-concurrency 4 --reset upstream
  caddy gateway deployment set r1 --connector rack --option think_tags=true --option reasoning_as=content
  caddy gateway deployment set assistant --connector rack --upstream vllm --model Qwen/Qwen3-32B
  caddy gateway deployment set bge-m3 --connector rack --kind embeddings`,
		account: true,
		flags: func(f *pflag.FlagSet) {
			f.StringArray("connector", nil, "A connector of the model (required for a new one; may be repeated)")
			f.String("add-connector", "", "One more connector of the model")
			f.String("upstream", "", "The name of the upstream in the connector's configuration")
			f.String("model", "", "The model's name on that server")
			f.String("kind", "", "chat or embeddings (default chat)")
			f.Int("max-concurrency", 0, "Limit of running requests (default no limit)")
			f.StringArray("option", nil, "NAME=VALUE: adjustment for the model server (may be repeated)")
			f.StringArray("reset", nil,
				"upstream, model, kind, max-concurrency or an option: back to its default (may be repeated)")
		},
		run: operation(deploymentRequest, func(in *invocation, d manage.Deployment) {
			through := make([]string, len(d.Through))
			for i, l := range d.Through {
				through[i] = fmt.Sprintf("connector %q (%s)", printable(l.Name), l.State)
			}
			in.printf("Deployment %q uses %s.\n", d.Name, strings.Join(through, ", "))
			if d.Warning != "" {
				in.warnf("Warning: %s\n", printable(d.Warning))
			}
		}),
	}, list[manage.Deployment]{
		kind: "deployment", short: "Lists deployments and their live state",
		empty:  "Publish a model with `caddy gateway deployment set NAME --connector ID_OR_NAME`.",
		header: []string{"NAME", "KIND", "STATE", "CONNECTOR", "UPSTREAM", "MODEL", "MAX", "OPTIONS", "UPDATED"},
		row: func(in *invocation, d manage.Deployment) []string {
			state, bound := d.StateText(), ""
			if d.OfflineSince != nil {
				state += " since " + in.env.date(*d.OfflineSince)
			}
			if d.MaxConcurrency != 0 {
				bound = strconv.Itoa(d.MaxConcurrency)
			}
			return []string{d.Name, string(d.Kind), state, strings.Join(d.ConnectorNames(), ", "), d.Upstream, d.Model, bound,
				d.Options.String(), in.env.date(d.UpdatedAt)}
		},
		notes: func(in *invocation, deployments []manage.Deployment) {
			for _, d := range deployments {
				if d.Warning != "" {
					in.warnf("Warning: %s: %s\n", d.Name, printable(d.Warning))
				}
			}
		},
	}.command(), {
		use: "remove NAME", short: "Removes a deployment",
		example: `  caddy gateway deployment remove qwen3:8b`,
		account: true,
		run: operation(send(http.MethodDelete, "/deployments/{}"), func(in *invocation, d manage.Deployment) {
			in.printf("Deployment %q is removed.\n", d.Name)
		}),
	}},
}

func deploymentRequest(in *invocation) (request, error) {
	connectors, _ := in.Flags().GetStringArray("connector")
	if slices.Contains(connectors, "") {
		return request{}, up.Usagef("--connector is empty; for example: caddy gateway deployment set %s --connector "+
			"workstation", in.arg)
	}
	r := in.request(http.MethodPut, "/deployments/{}", "upstream", "model", "kind", "add-connector")
	if len(connectors) > 0 {
		r.body["connectors"] = connectors
	}
	if bound, _ := in.Flags().GetInt("max-concurrency"); bound != 0 {
		r.body["max_concurrency"] = bound
	}
	options := map[string]any{}
	given, _ := in.Flags().GetStringArray("option")
	for _, assignment := range given {
		var o compat.Options
		if err := o.Parse(assignment); err != nil {
			return request{}, up.Usagef("--option: %w", err)
		}
		name, value, _ := strings.Cut(assignment, "=")
		options[name] = jsonValue(value)
	}
	reset, _ := in.Flags().GetStringArray("reset")
	for _, name := range reset {
		if err := resetField(r.body, options, name); err != nil {
			return request{}, err
		}
	}
	if len(options) > 0 {
		r.body["options"] = options
	}
	return r, nil
}

// resetField sets a field or an option to its default, unless another flag sets it.
func resetField(body, options map[string]any, name string) error {
	_, field := body[strings.ReplaceAll(name, "-", "_")]
	if _, option := options[name]; field || option {
		return up.Usagef("--reset: %s is given twice", name)
	}
	switch name {
	case "upstream", "model", "kind":
		body[name] = ""
		return nil
	case "max-concurrency":
		body["max_concurrency"] = 0
		return nil
	}
	i := slices.IndexFunc(compat.All(), func(o compat.Option) bool { return o.Name == name })
	if i < 0 {
		return up.Usagef("--reset: unknown name %.80q; the names are upstream, model, kind, max-concurrency, %s", name,
			strings.Join(compat.Names(), ", "))
	}
	options[name] = jsonValue(compat.All()[i].Values[0])
	return nil
}

// jsonValue returns the value of an option as JSON has it: those of flags are booleans.
func jsonValue(text string) any {
	if text == "true" || text == "false" {
		return text == "true"
	}
	return text
}

// optionsHelp returns the help of the options.
func optionsHelp() string {
	var b strings.Builder
	for i, o := range compat.All() {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "  %s=%s (default %s)\n      %s", o.Name, strings.Join(o.Values, "|"), o.Values[0], o.Help)
	}
	return b.String()
}
