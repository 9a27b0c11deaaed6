package caddymodule

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
)

// list is a command that prints the records of one kind, of an account.
type list[T any] struct {
	kind   string // "key": of `caddy gateway key list` and of the collection /keys
	short  string
	empty  string // what to do when there are none
	header []string
	row    func(T) []string
	notes  func(*cobra.Command, []T) // below the table; nil: none
}

// command returns the cobra command.
func (l list[T]) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   l.short,
		Example: "  caddy gateway " + l.kind + " list",
	}
	takes(cmd)
	accountFlag(cmd)
	adminFlags(cmd)
	runs(cmd, func(cmd *cobra.Command, _ []string) error {
		var records []T
		path := withAccount("/"+l.kind+"s", flagValue(cmd, "account"))
		if done, err := perform(cmd, http.MethodGet, path, nil, &records); done || err != nil {
			return err
		}
		if len(records) == 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "There are no %ss. %s\n", l.kind, l.empty)
			return nil
		}
		rows := [][]string{l.header}
		for _, r := range records {
			rows = append(rows, l.row(r))
		}
		if err := printTable(cmd.OutOrStdout(), rows); err != nil {
			return err
		}
		if l.notes != nil {
			l.notes(cmd, records)
		}
		return nil
	})
	return cmd
}
