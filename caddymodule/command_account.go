package caddymodule

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/caddymodule/store"
)

// accountCommand builds `caddy gateway account`.
func accountCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "account",
		Short: "Adds, changes, lists and removes accounts",
		Long: `Adds, changes, lists and removes accounts. Users, keys, connectors and deployments
belong to one account each, and see nothing of the others. Each account has limits
on how many of them it may have.`,
	}
	cmd.AddCommand(accountAddCommand(), accountSetCommand(), accountListCommand(env), accountRemoveCommand())
	commandGroup(cmd)
	return cmd
}

func accountAddCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add ID [--max-… N]",
		Short: "Adds an account",
		Long:  `Adds an account. Its id is made of a-z, 0-9 and "-".`,
		Example: `  caddy gateway account add research
  caddy gateway account add ci --max-keys 5000
  caddy gateway user add anna --account research`,
	}
	takes(cmd, "ID")
	limitFlags(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return usagef("the id is empty; usage: %s", cmd.UseLine())
		}
		request := limitRequest(cmd)
		request["id"] = args[0]
		var a store.Account
		if done, err := perform(cmd, http.MethodPost, "/accounts", request, &a); done || err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Account %q is added. Add its first user with `caddy gateway user add NAME --account %s`.\n", a.ID, a.ID)
		return nil
	})
	return cmd
}

func accountSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set ID --max-… N",
		Short: "Changes the limits of an account",
		Long: `Changes how much an account may have. Limits that are not given stay; 0 is the
default. What there is beyond a new limit stays, too.`,
		Example: `  caddy gateway account set default --max-keys 5000
  caddy gateway account set research --max-connectors 500 --max-deployments 0`,
	}
	takes(cmd, "ID")
	limitFlags(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		request := limitRequest(cmd)
		switch {
		case args[0] == "":
			return usagef("the id is empty; usage: %s", cmd.UseLine())
		case len(request) == 0:
			return usagef("nothing is to be changed; for example: caddy gateway account set %s --max-keys 5000", args[0])
		}
		var a store.Account
		if done, err := perform(cmd, http.MethodPatch, itemPath("/accounts", args[0], ""), request, &a); done || err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Account %q may have:\n\n", a.ID)
		for _, name := range store.LimitNames() {
			fmt.Fprintf(cmd.OutOrStdout(), "  %-12s %6d\n", strings.TrimPrefix(name, "max_"), *a.Limits.Field(name))
		}
		return nil
	})
	return cmd
}

// limitFlags adds a flag for each limit of an account.
func limitFlags(cmd *cobra.Command) {
	defaults := store.Limits{}.Effective()
	for _, name := range store.LimitNames() {
		flag := strings.ReplaceAll(name, "_", "-")
		cmd.Flags().Int(flag, 0, fmt.Sprintf("How many %s it may have (default %d)", strings.TrimPrefix(name, "max_"), *defaults.Field(name)))
	}
}

// limitRequest has the limits that are given.
func limitRequest(cmd *cobra.Command) map[string]any {
	request := map[string]any{}
	for _, name := range store.LimitNames() {
		flag := strings.ReplaceAll(name, "_", "-")
		if cmd.Flags().Changed(flag) {
			request[name], _ = cmd.Flags().GetInt(flag)
		}
	}
	return request
}

func accountListCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Lists accounts",
		Example: `  caddy gateway account list`,
	}
	takes(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, _ []string) error {
		var accounts []store.Account
		if done, err := perform(cmd, http.MethodGet, "/accounts", nil, &accounts); done || err != nil {
			return err
		}
		rows := [][]string{{"ID", "CREATED"}}
		for _, a := range accounts {
			rows = append(rows, []string{a.ID, env.date(a.CreatedAt)})
		}
		return printTable(cmd.OutOrStdout(), rows)
	})
	return cmd
}

func accountRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove ID",
		Short:   "Removes an account that is empty",
		Example: `  caddy gateway account remove research`,
	}
	takes(cmd, "ID")
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return usagef("the id is empty; usage: %s", cmd.UseLine())
		}
		var a store.Account
		if done, err := perform(cmd, http.MethodDelete, itemPath("/accounts", args[0], ""), nil, &a); done || err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Account %q is removed.\n", a.ID)
		return nil
	})
	return cmd
}
