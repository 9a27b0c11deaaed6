package caddymodule

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// keyCommand builds `caddy gateway key`.
func keyCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Creates, lists, revokes and removes API keys",
	}
	cmd.AddCommand(keyCreateCommand(), keyListCommand(env), keyRevokeCommand(), keyRemoveCommand())
	commandGroup(cmd)
	return cmd
}

func keyCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create --name NAME [--scope SCOPE]",
		Short: "Creates an API key and prints it, this once",
		Long: `Creates an API key and prints it. It is not stored and cannot be shown again.

The scope says which deployments the key may use: names or patterns, separated
by commas. "*" stands for any characters, "?" for one.`,
		Example: `  caddy gateway key create --name laptop
  caddy gateway key create --name ci --scope "qwen*,llama3.2:3b" --json`,
	}
	takes(cmd)
	cmd.Flags().String("name", "", "What the key is for (required)")
	cmd.Flags().String("scope", "", `The deployments it may use (default "*", all of them)`)
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, _ []string) error {
		name, err := needs(cmd, "name", "caddy gateway key create --name laptop")
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("scope") && flagValue(cmd, "scope") == "" {
			// An unset variable of a script, say: that must not mean all.
			return usagef(`--scope is empty; for all deployments write --scope "*", or leave it out`)
		}
		client, err := newAdminClient(cmd)
		if err != nil {
			return err
		}
		request := map[string]string{"name": name}
		setIf(request, "scope", flagValue(cmd, "scope"))
		setIf(request, "account", flagValue(cmd, "account"))
		var key manage.CreatedKey
		if err := client.call(http.MethodPost, "/keys", request, &key); err != nil {
			return err
		}
		if wantsJSON(cmd) {
			return printJSON(cmd.OutOrStdout(), key)
		}
		printCreatedKey(cmd.OutOrStdout(), key, client.url())
		return nil
	})
	return cmd
}

func printCreatedKey(w io.Writer, key manage.CreatedKey, url string) {
	fmt.Fprintf(w, `Key %q created. It is shown only this once, so store it now:

  %s

  id     %s
  scope  %s

Try it:

  curl %s/v1/models -H "Authorization: Bearer %s"
`, printable(key.Name), key.Key, key.ID, printable(key.Scope), url, key.Key)
}

func keyListCommand(env commandEnv) *cobra.Command {
	return list[store.Key]{
		kind: "key", short: "Lists API keys",
		empty:  "Create one with `caddy gateway key create --name NAME`.",
		header: []string{"ID", "NAME", "SCOPE", "CREATED", "LAST USED", "STATE"},
		row: func(k store.Key) []string {
			state := "valid"
			if k.RevokedAt != nil {
				state = "revoked " + env.ago(k.RevokedAt)
			}
			return []string{k.ID, k.Name, k.Scope, env.date(k.CreatedAt), env.ago(k.LastUsedAt), state}
		},
	}.command()
}

func keyRevokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Revokes an API key",
		Long: `Revokes an API key. When the command returns, new requests with the key are
refused and its running streams are cut.`,
		Example: `  caddy gateway key revoke key_06b3kz9v6dfx7fbv7wq7m5r2qm`,
	}
	takes(cmd, "ID")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		var key manage.DeletedKey
		if done, err := deleteItem(cmd, "/keys", args[0], &key); done || err != nil {
			return err
		}
		if key.Removed {
			fmt.Fprintf(cmd.OutOrStdout(), "Key %q (%s) was revoked before, and is removed now.\n", printable(key.Name), key.ID)
			return nil
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Key %q (%s) is revoked.\n", printable(key.Name), key.ID)
		return nil
	})
	return cmd
}

func keyRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove ID",
		Short: "Removes an API key from the list",
		Long: `Removes an API key, so that no list shows it any more. A key that works is revoked
first. Revoked keys are removed by themselves after 90 days.`,
		Example: `  caddy gateway key remove key_06b3kz9v6dfx7fbv7wq7m5r2qm`,
	}
	takes(cmd, "ID")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return usagef("the id is empty; usage: %s", cmd.UseLine())
		}
		client, err := newAdminClient(cmd)
		if err != nil {
			return err
		}
		var key manage.DeletedKey
		for range 2 { // a valid key is only revoked the first time
			if key.Removed {
				break
			}
			if err := client.call(http.MethodDelete, itemPath("/keys", args[0], flagValue(cmd, "account")), nil, &key); err != nil {
				return err
			}
		}
		if wantsJSON(cmd) {
			return printJSON(cmd.OutOrStdout(), key)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "Key %q (%s) is removed.\n", printable(key.Name), key.ID)
		return nil
	})
	return cmd
}

// setIf sets a member of a request that is only sent when it is given.
func setIf(request map[string]string, name, value string) {
	if value != "" {
		request[name] = value
	}
}

// deleteItem deletes one record, and reads what it was into out.
func deleteItem(cmd *cobra.Command, collection, name string, out any) (done bool, err error) {
	if name == "" {
		return false, usagef("the name is empty; usage: %s", cmd.UseLine())
	}
	return perform(cmd, http.MethodDelete, itemPath(collection, name, flagValue(cmd, "account")), nil, out)
}

// perform calls the gateway. It is done when the caller asked for JSON, which
// it prints.
func perform(cmd *cobra.Command, method, path string, body, out any) (done bool, err error) {
	client, err := newAdminClient(cmd)
	if err != nil {
		return false, err
	}
	if err := client.call(method, path, body, out); err != nil {
		return false, err
	}
	if wantsJSON(cmd) {
		return true, printJSON(cmd.OutOrStdout(), out)
	}
	return false, nil
}
