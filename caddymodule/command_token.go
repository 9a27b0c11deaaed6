package caddymodule

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// tokenCommand builds `caddy gateway token`.
func tokenCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Creates, lists and revokes management tokens",
		Long: `Creates, lists and revokes management tokens, with which programs use the
management API of the console. For requests to models there are keys.`,
	}
	cmd.AddCommand(tokenCreateCommand(env), tokenListCommand(env), tokenRevokeCommand())
	commandGroup(cmd)
	return cmd
}

func tokenCreateCommand(env commandEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create --name NAME --user USER [--rights RIGHTS] [--days N]",
		Short: "Creates a management token and prints it, this once",
		Long: `Creates a management token and prints it. It is not stored and cannot be shown
again.

The rights are a list, separated by commas, of:

  read         see everything of the account but secrets
  keys         make, revoke and remove API keys
  connectors   make, rotate and remove connectors, and pair devices
  deployments  set, test and remove deployments

No token makes tokens, users or links.`,
		Example: `  caddy gateway token create --name monitoring --user anna
  caddy gateway token create --name ci --user anna --rights keys,deployments --days 90`,
	}
	takes(cmd)
	cmd.Flags().String("name", "", "What the token is for (required)")
	cmd.Flags().String("user", "", "The name or id of the user that it acts for (required)")
	cmd.Flags().StringSlice("rights", nil, "What it may be used for (default read)")
	cmd.Flags().Int("days", 0, "After how many days it ends (default: it does not)")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, _ []string) error {
		request, err := tokenRequest(cmd, env)
		if err != nil {
			return err
		}
		var token manage.CreatedToken
		if done, err := perform(cmd, http.MethodPost, "/tokens", request, &token); done || err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), `Management token %q created. It is shown only this once, so store it now:

  %s

  id      %s
  rights  %s
  ends    %s
`, printable(token.Name), token.Token, token.ID, token.Rights, env.end(token.ExpiresAt))
		return nil
	})
	return cmd
}

// tokenRequest is what the flags ask for.
func tokenRequest(cmd *cobra.Command, env commandEnv) (map[string]any, error) {
	const example = "caddy gateway token create --name ci --user anna"
	name, err := needs(cmd, "name", example)
	if err != nil {
		return nil, err
	}
	user, err := needs(cmd, "user", example)
	if err != nil {
		return nil, err
	}
	request := map[string]any{"name": name, "user": user}
	if rights, _ := cmd.Flags().GetStringSlice("rights"); cmd.Flags().Changed("rights") {
		if _, err := store.ParseRights(rights); err != nil {
			return nil, usageError{err}
		}
		request["rights"] = rights
	}
	if days, _ := cmd.Flags().GetInt("days"); cmd.Flags().Changed("days") {
		if days < 1 {
			return nil, usagef("--days is %d, but must be at least 1; leave it out for a token that does not end by itself", days)
		}
		request["expires_at"] = env.now().UTC().AddDate(0, 0, days).Format(time.RFC3339)
	}
	if account := flagValue(cmd, "account"); account != "" {
		request["account"] = account
	}
	return request, nil
}

func tokenListCommand(env commandEnv) *cobra.Command {
	return list[manage.Token]{
		kind: "token", short: "Lists management tokens",
		empty:  "Create one with `caddy gateway token create --name NAME --user USER`.",
		header: []string{"ID", "NAME", "USER", "RIGHTS", "CREATED", "LAST USED", "ENDS"},
		row: func(t manage.Token) []string {
			return []string{t.ID, t.Name, t.UserName, t.Rights.String(), env.date(t.CreatedAt), env.ago(t.LastUsedAt), env.end(t.ExpiresAt)}
		},
	}.command()
}

// end tells when something ends or has ended; "never" for no time.
func (e commandEnv) end(at *time.Time) string {
	switch {
	case at == nil:
		return "never"
	case e.now().Before(*at):
		return e.in(*at)
	}
	return "ended " + e.ago(at)
}

func tokenRevokeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "revoke ID [--made]",
		Short: "Revokes a management token",
		Long: `Revokes a management token. When the command returns, new requests with it are
refused. It lists what the token made or changed, which stays; with --made, the
keys among it are revoked, and the deployments and connectors removed. That can be
done later, too: the id is still known then.`,
		Example: `  caddy gateway token revoke mgt_06b3kz9v6dfx7fbv7wq7m5r2qm
  caddy gateway token revoke mgt_06b3kz9v6dfx7fbv7wq7m5r2qm --made`,
	}
	takes(cmd, "ID")
	cmd.Flags().Bool("made", false, "Also revoke and remove what the token made or changed")
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return usagef("the id is empty; usage: %s", cmd.UseLine())
		}
		path, remove := itemPath("/tokens", args[0], flagValue(cmd, "account")), false
		if remove, _ = cmd.Flags().GetBool("made"); remove {
			path = withQuery(path, "made=remove")
		}
		var token manage.RevokedToken
		if done, err := perform(cmd, http.MethodDelete, path, nil, &token); done || err != nil {
			return err
		}
		printRevokedToken(cmd.OutOrStdout(), token, remove)
		if left := token.Made.Problems(); len(left) > 0 {
			return fmt.Errorf("%d of these could not be removed; the list says why", len(left))
		}
		return nil
	})
	return cmd
}

func printRevokedToken(w io.Writer, token manage.RevokedToken, removed bool) {
	fmt.Fprintf(w, "Management token %s is revoked.\n", token.ID)
	switch {
	case token.Made.Count() == 0:
	case removed:
		fmt.Fprint(w, "What it made or changed is revoked or removed:\n\n")
		printMade(w, token.Made)
	default:
		fmt.Fprint(w, "It made or changed these, which stay:\n\n")
		printMade(w, token.Made)
		fmt.Fprintf(w, "\nIf it got into wrong hands, end them, too:\n\n  caddy gateway token revoke %s --made\n", token.ID)
	}
}

func printMade(w io.Writer, m manage.Made) {
	for _, kind := range []struct {
		name    string
		records []manage.MadeRecord
	}{{"key", m.Keys}, {"connector", m.Connectors}, {"deployment", m.Deployments}} {
		for _, r := range kind.records {
			line := fmt.Sprintf("  %-10s  %s", kind.name, printable(r.Name))
			if r.ID != r.Name {
				line += " (" + r.ID + ")"
			}
			if r.Problem != "" {
				line += ": " + printable(r.Problem)
			}
			fmt.Fprintln(w, line)
		}
	}
}
