package caddymodule

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/caddymodule/store"
)

// accountCommand builds `caddy gateway account`.
func accountCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "account",
		Short: "Adds, lists and removes accounts",
		Long: `Adds, lists and removes accounts. Users, keys, connectors and deployments belong
to one account each, and see nothing of the others.`,
	}
	cmd.AddCommand(accountAddCommand(), accountListCommand(env), accountRemoveCommand())
	commandGroup(cmd)
	return cmd
}

func accountAddCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add ID",
		Short: "Adds an account",
		Long:  `Adds an account. Its id is made of a-z, 0-9 and "-".`,
		Example: `  caddy gateway account add research
  caddy gateway user add anna --account research`,
	}
	takes(cmd, "ID")
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return usagef("the id is empty; usage: %s", cmd.UseLine())
		}
		var a store.Account
		if done, err := perform(cmd, http.MethodPost, "/accounts", map[string]string{"id": args[0]}, &a); done || err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Account %q is added. Add its first user with `caddy gateway user add NAME --account %s`.\n", a.ID, a.ID)
		return nil
	})
	return cmd
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
