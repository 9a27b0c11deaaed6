package caddymodule

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

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
		Use:   "set NAME --connector ID_OR_NAME [--upstream UPSTREAM] [--model MODEL]",
		Short: "Registers a public model name, or gives it a new way",
		Long: `Registers a public model name, or gives it a new way: requests that come later
take it at once, running ones finish on the old one.

Without --upstream and --model the connector's own routes decide; a connector
without routes uses its only upstream, and the public name there.`,
		Example: `  caddy gateway deployment set qwen3:8b --connector workstation
  caddy gateway deployment set assistant --connector rack --upstream vllm --model Qwen/Qwen3-32B`,
	}
	takes(cmd, "NAME")
	cmd.Flags().String("connector", "", "The connector that leads to the model (required)")
	cmd.Flags().String("upstream", "", "The model server of that connector, by its name there")
	cmd.Flags().String("model", "", "The model's id on that server")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return usagef("the name is empty; usage: %s", cmd.UseLine())
		}
		connector, err := needs(cmd, "connector", "caddy gateway deployment set "+printable(args[0])+" --connector workstation")
		if err != nil {
			return err
		}
		request := map[string]string{"connector": connector}
		setIf(request, "upstream", flagValue(cmd, "upstream"))
		setIf(request, "model", flagValue(cmd, "model"))
		setIf(request, "account", flagValue(cmd, "account"))
		var d manage.Deployment
		if done, err := perform(cmd, http.MethodPut, itemPath("/deployments", args[0], ""), request, &d); done || err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Deployment %q leads to connector %q (%s).\n", d.Name, printable(d.ConnectorName), d.State)
		if d.Warning != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "Warning: "+printable(d.Warning))
		}
		return nil
	})
	return cmd
}

func deploymentListCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Lists deployments and their live state",
		Example: `  caddy gateway deployment list`,
	}
	takes(cmd)
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, _ []string) error {
		var deployments []manage.Deployment
		if done, err := fetchList(cmd, "/deployments", &deployments); done || err != nil {
			return err
		}
		if len(deployments) == 0 {
			fmt.Fprintln(cmd.OutOrStdout(), "There are no deployments. Register one with `caddy gateway deployment set NAME --connector ID_OR_NAME`.")
			return nil
		}
		rows := [][]string{{"NAME", "STATE", "CONNECTOR", "UPSTREAM", "MODEL", "UPDATED"}}
		for _, d := range deployments {
			rows = append(rows, []string{d.Name, d.State, d.ConnectorName, d.Upstream, d.Model, env.date(d.UpdatedAt)})
		}
		if err := printTable(cmd.OutOrStdout(), rows); err != nil {
			return err
		}
		for _, d := range deployments {
			if d.Warning != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s: %s\n", d.Name, printable(d.Warning))
			}
		}
		return nil
	})
	return cmd
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
