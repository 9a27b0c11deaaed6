package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// invocation is one run of a command.
type invocation struct {
	*cobra.Command
	env environment
	arg string // the argument, "" if the command has none
}

// text returns the value of a string flag, "" if the command lacks it.
func (in *invocation) text(name string) string {
	value, _ := in.Flags().GetString(name)
	return value
}

// is returns the value of a boolean flag.
func (in *invocation) is(name string) bool {
	value, _ := in.Flags().GetBool(name)
	return value
}

// needs returns the value of a string flag that must be given.
func (in *invocation) needs(name, example string) (string, error) {
	value := in.text(name)
	if value == "" {
		return "", usagef("--%s is missing; for example: %s", name, example)
	}
	return value, nil
}

func (in *invocation) printf(format string, args ...any) {
	fmt.Fprintf(in.OutOrStdout(), format, args...)
}

func (in *invocation) warnf(format string, args ...any) {
	fmt.Fprintf(in.ErrOrStderr(), format, args...)
}

// fields is the body of a request.
type fields map[string]any

// flagFields returns the account and the given string flags, without empty ones.
func (in *invocation) flagFields(names ...string) fields {
	f := fields{}
	for _, name := range append(names, "account") {
		if value := in.text(name); value != "" {
			f[name] = value
		}
	}
	return f
}

// request is a request to the management API; without a body unless it has one.
type request struct {
	method, path string
	body         fields
}

// operation returns the function of a command that makes one request. It prints the
// answer as JSON, or by show.
func operation[T any](make func(*invocation) (request, error), show func(*invocation, T) error) func(*invocation) error {
	return func(in *invocation) error {
		r, err := make(in)
		if err != nil {
			return err
		}
		c, err := in.client()
		if err != nil {
			return err
		}
		var answer T
		if err := c.do(in.Context(), r, &answer); err != nil {
			return err
		}
		if in.is("json") {
			return printJSON(in.OutOrStdout(), answer)
		}
		return show(in, answer)
	}
}

// fetch makes a request without a body.
func fetch(method, path string) func(*invocation) (request, error) {
	return func(*invocation) (request, error) { return request{method: method, path: path}, nil }
}

// remove deletes the record of a collection that the argument names.
func remove(collection string) func(*invocation) (request, error) {
	return func(in *invocation) (request, error) {
		return request{method: http.MethodDelete, path: in.withAccount(itemPath(collection, in.arg))}, nil
	}
}

// itemPath returns the path of a record. Its name may contain any character; dots are
// escaped, as clients remove dot segments.
func itemPath(collection, name string) string {
	return collection + "/" + strings.ReplaceAll(url.PathEscape(name), ".", "%2E")
}

// withAccount adds the account to a path, unless it is the default one.
func (in *invocation) withAccount(path string) string {
	if account := in.text("account"); account != "" {
		return path + "?account=" + url.QueryEscape(account)
	}
	return path
}

// list is a command that prints the records of one kind, of an account.
type list[T any] struct {
	kind   string // "key": of `caddy gateway key list` and of the collection /keys
	short  string
	all    bool   // it lists the records of all accounts
	empty  string // how to create the first
	header []string
	row    func(*invocation, T) []string
	notes  func(*invocation, []T) // below the table; nil: none
}

// command returns the entry of the table.
func (l list[T]) command() command {
	make := func(in *invocation) (request, error) {
		return request{method: http.MethodGet, path: in.withAccount("/" + l.kind + "s")}, nil
	}
	return command{use: "list", short: l.short, example: "  caddy gateway " + l.kind + " list", account: !l.all, run: operation(make, l.print)}
}

func (l list[T]) print(in *invocation, records []T) error {
	if len(records) == 0 {
		in.printf("No %ss yet. %s\n", l.kind, l.empty)
		return nil
	}
	rows := [][]string{l.header}
	for _, r := range records {
		rows = append(rows, l.row(in, r))
	}
	if err := printTable(in.OutOrStdout(), rows); err != nil {
		return err
	}
	if l.notes != nil {
		l.notes(in, records)
	}
	return nil
}
