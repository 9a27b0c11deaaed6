package caddymodule

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/manage"
)

// deploymentCommand builds `caddy gateway deployment`.
func deploymentCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deployment",
		Short: "Sets, lists and removes deployments",
	}
	cmd.AddCommand(deploymentSetCommand(), deploymentListCommand(env), deploymentRemoveCommand())
	commandGroup(cmd)
	return cmd
}

func deploymentSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME --connector ID_OR_NAME … [--upstream UPSTREAM] [--model MODEL] [--max-concurrency N] [--option NAME=VALUE …]",
		Short: "Registers a public model name, or gives it a new way",
		Long: `Registers a public model name, or gives it a new way: requests that come later
take it at once, running ones finish on the old one.

Without --upstream and --model the connector's own routes decide; a connector
without routes uses its only upstream, and the public name there.

With several connectors, each request goes to the one that has the fewest, and
past one that is gone. All of them have to have the model under the same name.

With --max-concurrency so many requests run at a time; more wait for their turn,
which goes round robin over the keys.

With --option the gateway treats the model server otherwise than most:

` + optionsHelp() + `

What is not given is at its default, also if it was set before.`,
		Example: `  caddy gateway deployment set qwen3:8b --connector workstation
  caddy gateway deployment set qwen3:8b --connector workstation --connector rack --max-concurrency 8
  caddy gateway deployment set r1 --connector rack --option think_tags=true --option reasoning_as=content
  caddy gateway deployment set assistant --connector rack --upstream vllm --model Qwen/Qwen3-32B`,
	}
	takes(cmd, "NAME")
	cmd.Flags().StringArray("connector", nil, "A connector that leads to the model (required; may be repeated)")
	cmd.Flags().String("upstream", "", "The model server of that connector, by its name there")
	cmd.Flags().String("model", "", "The model's id on that server")
	cmd.Flags().Int("max-concurrency", 0, "How many requests may run at a time (default any number)")
	cmd.Flags().StringArray("option", nil, "NAME=VALUE: how to treat the model server (may be repeated)")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return usagef("the name is empty; usage: %s", cmd.UseLine())
		}
		request, err := deploymentRequest(cmd, args[0])
		if err != nil {
			return err
		}
		var d manage.Deployment
		if done, err := perform(cmd, http.MethodPut, itemPath("/deployments", args[0], ""), request, &d); done || err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Deployment %q leads to %s.\n", d.Name, legs(d))
		if d.Warning != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "Warning: "+printable(d.Warning))
		}
		return nil
	})
	return cmd
}

// deploymentRequest is what the flags ask for.
func deploymentRequest(cmd *cobra.Command, name string) (map[string]any, error) {
	connectors, err := cmd.Flags().GetStringArray("connector")
	if err != nil {
		return nil, err
	}
	if len(connectors) == 0 || slices.Contains(connectors, "") {
		return nil, usagef("--connector is missing; for example: caddy gateway deployment set %s --connector workstation", printable(name))
	}
	bound, err := cmd.Flags().GetInt("max-concurrency")
	if err != nil {
		return nil, err
	}
	request := map[string]any{"connectors": connectors}
	if bound != 0 {
		request["max_concurrency"] = bound
	}
	options, err := optionFlags(cmd)
	if err != nil {
		return nil, err
	}
	if options != (compat.Options{}) {
		request["options"] = options
	}
	for _, flag := range []string{"upstream", "model", "account"} {
		if value := flagValue(cmd, flag); value != "" {
			request[flag] = value
		}
	}
	return request, nil
}

// optionFlags is what the flags --option say.
func optionFlags(cmd *cobra.Command) (compat.Options, error) {
	var options compat.Options
	given, err := cmd.Flags().GetStringArray("option")
	if err != nil {
		return options, err
	}
	for _, assignment := range given {
		if err := options.Parse(assignment); err != nil {
			return options, usagef("--option: %s", printable(err.Error()))
		}
	}
	return options, nil
}

// optionsHelp explains the options, one under the other.
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

// deploymentState is the state of a deployment in words, with the time at which it
// went offline.
func (e commandEnv) deploymentState(d manage.Deployment) string {
	if d.OfflineSince != nil {
		return d.StateText() + " since " + e.date(*d.OfflineSince)
	}
	return d.StateText()
}

// legs lists the connectors of a deployment with their states.
func legs(d manage.Deployment) string {
	list := make([]string, len(d.Through))
	for i, l := range d.Through {
		list[i] = fmt.Sprintf("connector %q (%s)", printable(l.Name), l.State)
	}
	return strings.Join(list, ", ")
}

// bound is what a deployment's MaxConcurrency is in a list.
func bound(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func deploymentListCommand(env commandEnv) *cobra.Command {
	return list[manage.Deployment]{
		kind: "deployment", short: "Lists deployments and their live state",
		empty:  "Register one with `caddy gateway deployment set NAME --connector ID_OR_NAME`.",
		header: []string{"NAME", "STATE", "CONNECTOR", "UPSTREAM", "MODEL", "MAX", "OPTIONS", "UPDATED"},
		row: func(d manage.Deployment) []string {
			return []string{d.Name, env.deploymentState(d), strings.Join(d.ConnectorNames(), ", "), d.Upstream, d.Model, bound(d.MaxConcurrency), d.Options.String(), env.date(d.UpdatedAt)}
		},
		notes: func(cmd *cobra.Command, deployments []manage.Deployment) {
			for _, d := range deployments {
				if d.Warning != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s: %s\n", d.Name, printable(d.Warning))
				}
			}
		},
	}.command()
}

func deploymentRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove NAME",
		Short:   "Removes a deployment",
		Example: `  caddy gateway deployment remove qwen3:8b`,
	}
	takes(cmd, "NAME")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		var d manage.Deployment
		if done, err := deleteItem(cmd, "/deployments", args[0], &d); done || err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Deployment %q is removed.\n", d.Name)
		return nil
	})
	return cmd
}
