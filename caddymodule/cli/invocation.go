package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/program"
	"github.com/postern-dev/postern/caddymodule/store"
)

// invocation is one run of a command.
type invocation struct {
	*cobra.Command
	env   environment
	arg   string // the argument, "" if the command has none
	err   error  // of the printed answer: the command fails
	local string // the admin endpoint of `up`; "" for that of the flags
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

func (in *invocation) printf(format string, args ...any) {
	fmt.Fprintf(in.OutOrStdout(), program.NamedAsTyped(format), args...)
}

func (in *invocation) warnf(format string, args ...any) {
	fmt.Fprintf(in.ErrOrStderr(), program.NamedAsTyped(format), args...)
}

// request is a request to the management API; without a body if it is nil.
type request struct {
	method, path string
	body         map[string]any
}

// request returns a request in the account of the command. "{}" in the path is its
// argument, which may contain any character; dots are escaped, as clients remove dot
// segments. The body has the given string flags, without empty ones.
func (in *invocation) request(method, path string, flags ...string) request {
	r := request{method: method, path: strings.Replace(path, "{}",
		strings.ReplaceAll(url.PathEscape(in.arg), ".", "%2E"), 1)}
	account := in.text("account")
	if method == http.MethodGet || method == http.MethodDelete {
		if account != "" {
			r.path += "?account=" + url.QueryEscape(account)
		}
		return r
	}
	r.body = map[string]any{}
	for _, name := range append(flags, "account") {
		if value := in.text(name); value != "" {
			r.body[strings.ReplaceAll(name, "-", "_")] = value
		}
	}
	return r
}

// with adds a parameter to the query.
func (r request) with(name, value string) request {
	separator := "?"
	if strings.Contains(r.path, "?") {
		separator = "&"
	}
	r.path += separator + name + "=" + value
	return r
}

// send is the request of a command that needs no more than its flags.
func send(method, path string, flags ...string) func(*invocation) (request, error) {
	return func(in *invocation) (request, error) { return in.request(method, path, flags...), nil }
}

// operation returns the function of a command that makes one request. It prints the
// answer as JSON, or by show.
func operation[T any](make func(*invocation) (request, error), show func(*invocation, T)) func(*invocation) error {
	return func(in *invocation) error {
		r, err := make(in)
		if err != nil {
			return err
		}
		var answer T
		if err := in.do(r, &answer); err != nil {
			return err
		}
		if in.is("json") {
			return printJSON(in.OutOrStdout(), answer)
		}
		show(in, answer)
		return in.err
	}
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
	return command{
		use: "list", short: l.short, example: "  caddy gateway " + l.kind + " list", account: !l.all,
		run: operation(send(http.MethodGet, "/"+l.kind+"s"), l.print),
	}
}

func (l list[T]) print(in *invocation, records []T) {
	if len(records) == 0 {
		in.printf("No %ss yet. "+l.empty+"\n", l.kind)
		return
	}
	rows := [][]string{l.header}
	for _, r := range records {
		rows = append(rows, l.row(in, r))
	}
	in.err = printTable(in.OutOrStdout(), rows)
	if l.notes != nil {
		l.notes(in, records)
	}
}

// usual reports whether the command line leaves the admin endpoint to up.DefaultAdmin.
func (in *invocation) usual() bool {
	return in.local == "" && in.text("address") == "" && in.text("config") == ""
}

// admin finds the admin endpoint, a Caddy network address, as Caddy's own commands do.
func (in *invocation) admin() (string, error) {
	if in.local != "" {
		return in.local, nil
	}
	if in.usual() {
		return up.DefaultAdmin()
	}
	if scheme, _, ok := strings.Cut(in.text("address"), "://"); ok {
		return "", up.Usagef("--address is Caddy's admin endpoint, such as localhost:2019, and not the URL of a site; "+
			"write it without %s://", scheme)
	}
	address, err := caddycmd.DetermineAdminAPIAddress(in.text("address"), nil, in.text("config"), in.text("adapter"))
	if err != nil {
		return "", up.Usagef("finding the admin endpoint: %w", err)
	}
	return address, nil
}

// do sends a request to the management API of the running gateway and decodes the
// answer into out.
func (in *invocation) do(r request, out any) error {
	resp, err := in.send(r)
	if unconfirmed, ok := errors.AsType[unconfirmedError](err); ok && in.is("json") {
		return errors.Join(err, printJSON(in.OutOrStdout(), unconfirmed.UnconfirmedAnswer))
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("reading the answer of the gateway: %w", err)
	}
	return nil
}

// send sends a request to the management API of the running gateway. The caller must
// close the answer's body.
func (in *invocation) send(r request) (*http.Response, error) {
	address, err := in.admin()
	if err != nil {
		return nil, err
	}
	addr, err := caddy.ParseNetworkAddress(address)
	if err != nil || addr.PortRangeSize() > 1 {
		return nil, up.Usagef("the admin endpoint %q is not an address such as localhost:2019", address)
	}
	dial, header := addr.JoinHostPort(0), http.Header{"Content-Type": {"application/json"}}
	base := "http://" + dial
	if addr.IsUnixNetwork() || addr.IsFdNetwork() {
		base = "http://127.0.0.1"
		dial, _, _ = strings.Cut(dial, "|") // the permissions of a socket
	} else {
		header.Set("Origin", base) // Caddy checks it
	}
	var body io.Reader
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("encoding the request: %w", err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(in.Context(), r.method, base+manage.AdminPrefix+r.path, body)
	if err != nil {
		return nil, fmt.Errorf("creating the request: %w", err)
	}
	req.Header = header
	resp, err := (&http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, addr.Network, dial)
			if err != nil || !in.usual() {
				return conn, err
			}
			if err := up.CheckListener(conn); err != nil {
				_ = conn.Close()
				return nil, err
			}
			return conn, nil
		},
	}}).Do(req)
	if err != nil {
		return nil, fmt.Errorf(program.Named("no gateway answers at %s: %w\nStart it with `caddy run --config Caddyfile` "+
			"or `caddy gateway up`, or name its configuration with --config or its admin endpoint with --address"), address, err)
	}
	if resp.StatusCode >= http.StatusBadRequest || resp.StatusCode == http.StatusAccepted {
		defer resp.Body.Close()
		return nil, refusal(address, resp)
	}
	return resp, nil
}

// refusal returns the error of a response, from the management API or from another
// server. A change that edges have not confirmed is an error of the command, too.
func refusal(address string, resp *http.Response) error {
	const limit = 1 << 20 // bytes
	var answer struct {
		Error string `json:"error"`
		manage.UnconfirmedAnswer
	}
	err := json.NewDecoder(io.LimitReader(resp.Body, limit)).Decode(&answer)
	switch {
	case err == nil && answer.Error != "" && resp.StatusCode == http.StatusConflict:
		return store.Errorf(store.ErrConflict, "%s", answer.Error)
	case err == nil && answer.Error != "":
		return errors.New(answer.Error)
	case err == nil && answer.Message != "" && resp.StatusCode == http.StatusAccepted:
		return unconfirmedError{answer.UnconfirmedAnswer}
	case resp.Header.Get("Server") == "Caddy": // the admin endpoint does not send it
		return fmt.Errorf("%s is the address of a site, not of Caddy's admin endpoint, whose usual address is localhost:2019", address)
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf(program.Named("the Caddy at %s has no model gateway; build it with the module (`caddy "+
			"list-modules` shows the modules of a program)"), address)
	}
	return fmt.Errorf("the server at %s answered HTTP %d; it may not be Caddy's admin endpoint, whose usual address is "+
		"localhost:2019", address, resp.StatusCode)
}

// url returns the base of the gateway's HTTP API for a sample request, or a
// placeholder if it is not known.
func (in *invocation) url() string {
	var status manage.Status
	if in.do(request{method: http.MethodGet, path: "/status"}, &status) != nil || status.URL == "" {
		return "https://YOUR-GATEWAY"
	}
	return status.URL
}
