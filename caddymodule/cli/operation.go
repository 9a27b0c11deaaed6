package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/manage"
)

// request is a request to the management API.
type request struct {
	method, path string
	body         map[string]any // nil: the fields are in the query of path
}

// newRequest returns a request of an operation, such as "POST /keys", in the account of the
// command. The record in its path is the argument.
func (in *invocation) newRequest(operation string) *request {
	o := manage.FindOperation(operation)
	r := &request{method: o.Method, path: o.Path}
	if start, end := strings.IndexByte(r.path, '{'), strings.IndexByte(r.path, '}'); start >= 0 {
		// The argument may contain any character. Clients remove segments of dots.
		r.path = r.path[:start] + strings.ReplaceAll(url.PathEscape(in.arg), ".", "%2E") + r.path[end+1:]
	}
	if o.Method != http.MethodGet && o.Method != http.MethodDelete {
		r.body = map[string]any{}
	}
	if account := in.text("account"); account != "" && o.About == manage.InAccount {
		r.set("account", account)
	}
	return r
}

// set sets a field of the request.
func (r *request) set(name string, value any) {
	if r.body != nil {
		r.body[name] = value
		return
	}
	separator := "?"
	if strings.Contains(r.path, "?") {
		separator = "&"
	}
	r.path += separator + name + "=" + url.QueryEscape(fmt.Sprint(value))
}

// perform performs the operation of the command, and prints the answer.
func (in *invocation) perform() error {
	r, err := in.request()
	if err != nil {
		return err
	}
	answer := reflect.New(manage.FindOperation(in.command.operation).Answer).Elem()
	if err := in.do(r, answer.Addr().Interface()); err != nil {
		return err
	}
	if in.command.edit != nil {
		if err := in.command.edit(in, answer.Interface()); err != nil {
			return err
		}
	}
	if in.is("json") {
		return printJSON(in.OutOrStdout(), answer.Interface())
	}
	in.command.print(in, answer.Interface())
	return nil
}

// request returns the request of the command line.
func (in *invocation) request() (*request, error) {
	c := in.command
	r := in.newRequest(c.operation)
	empty := len(r.body) // it may contain the account
	for _, f := range c.fields() {
		if err := f.fill(in, r); err != nil {
			return nil, err
		}
	}
	if r.method == http.MethodPatch && len(r.body) == empty {
		return nil, up.Usagef("nothing to change is given; for example: %s", in.sample())
	}
	if c.prepare == nil {
		return r, nil
	}
	return r, c.prepare(in, r)
}
