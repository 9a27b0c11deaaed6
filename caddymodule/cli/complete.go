package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/clients"
)

// completions are the values of flags and arguments: words, or those of the records that an operation lists. Some
// depend on the operation of the command.
var completions = map[string]string{
	"account": "GET /accounts", "connector": "GET /connectors", "add-connector": "GET /connectors",
	"replace": "GET /connectors", "key": "GET /keys", "user": "GET /users", "owner": "GET /users", "member": "GET /users",
	"group":         "GET /groups",
	"GET /audit by": "GET /users", // another kind than for usage
	"model":         "GET /deployments", "default-model": "GET /deployments", "fallback": "GET /deployments",
	"PUT /deployments/{name} model": " ", // the model server's
	"CLIENT":                        strings.Join(clients.WithFile(), " "),
	"option":                        strings.Join(compat.Names(), "= ") + "=",
	"reset":                         strings.ReplaceAll(resetNames, ",", "") + " " + strings.Join(compat.Names(), " "),
	"kind":                          fmt.Sprint(store.ModelKinds), "priority": fmt.Sprint(store.Priorities()),
	"max-priority": fmt.Sprint(store.Priorities()),
	"role":         fmt.Sprint(store.Roles()), "rights": strings.Join(store.RightNames(), " "),
	"status": "ok failed refused client", "sort": strings.ReplaceAll(keyOrders, ",", ""), "color": "auto always never",
	"by": "hour day user key model", "keys": "revoke keep give=",
}

// complete lets shells complete the argument and the flags of a command. They complete names of files only for files.
func (c *command) complete(cmd *cobra.Command, env environment) {
	words := func(list, name string) cobra.CompletionFunc {
		return func(cmd *cobra.Command, args []string, _ string) (values []string, _ cobra.ShellCompDirective) {
			if in := (&invocation{Command: cmd, command: c, env: env}); len(args) == 0 || name == "" { // a flag
				values = in.values(list, name == "ID")
			}
			return values, cobra.ShellCompDirectiveNoFileComp
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if list := cmp.Or(completions[c.operation+" "+f.Name], completions[f.Name]); f.Name != "config" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, words(list, ""))
		}
	})
	list := completions[c.argumentName()]
	if collection, _, found := strings.Cut(c.operation, "/{"); found {
		list = "GET " + collection[strings.Index(collection, "/"):]
	}
	if c.argumentName() != "FILE" {
		cmd.ValidArgsFunction = words(list, c.argumentName())
	}
}

// values returns the words of a completion, or the names of its records, or their ids. A gateway that does not answer
// at once has none.
func (in *invocation) values(list string, ids bool) (values []string) {
	if manage.FindOperation(list).Path == "" {
		return strings.Fields(strings.Trim(list, "[]"))
	}
	ctx, cancel := context.WithTimeout(in.Context(), time.Second)
	defer cancel()
	in.SetContext(ctx)
	var records []struct{ ID, Name string }
	_ = in.do(in.newRequest(list), &records) // without an answer, there are no records
	for _, r := range records {
		values = append(values, map[bool]string{true: r.ID, false: r.Name}[ids])
	}
	return values
}
