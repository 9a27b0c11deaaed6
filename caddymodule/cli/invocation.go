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
	"strings"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/program"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/text"
)

// invocation is one run of a command.
type invocation struct {
	*cobra.Command
	command *command
	env     environment
	arg     string         // the argument, "" if the command has none
	widths  map[string]int // of the columns of the table, by title; 0: left out
	least   string         // titles of its least columns
	local   string         // the admin endpoint, "" before the first request: the one that the flags name
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

// printf prints to the standard output. Strings in args become printable.
func (in *invocation) printf(format string, args ...any) {
	in.fprintf(in.OutOrStdout(), format, args)
}

// warnf is printf to the standard error.
func (in *invocation) warnf(format string, args ...any) {
	in.fprintf(in.ErrOrStderr(), format, args)
}

func (in *invocation) fprintf(w io.Writer, format string, args []any) {
	for i, arg := range args {
		if s, ok := arg.(string); ok {
			args[i] = text.Line(s)
		}
	}
	fmt.Fprintf(w, program.NamedAsTyped(format), args...)
}

// admin finds the admin endpoint, a Caddy network address, as Caddy's own commands do.
func (in *invocation) admin() (string, error) {
	if in.local != "" {
		return in.local, nil
	}
	address := in.text("address")
	if scheme, _, ok := strings.Cut(address, "://"); ok {
		return "", up.Usagef("--address is Caddy's admin endpoint, such as localhost:2019, and not the URL of a site; "+
			"write it without %s://", scheme)
	}
	if address != "" {
		return address, nil
	}
	if in.text("config") == "" {
		in.local = up.DefaultAdmin()
		if in.local == up.Running() && up.AnswersAt(caddy.DefaultAdminListen) {
			in.warnf("This is the gateway of `caddy gateway up`. For the other one, add --address %s.\n",
				caddy.DefaultAdminListen)
		}
		return in.local, nil
	}
	config, err := in.loadConfig()
	if err == nil {
		address, err = caddycmd.DetermineAdminAPIAddress("", config, in.text("config"), "")
	}
	if err != nil {
		return "", up.Usagef("finding the admin endpoint: %w", err)
	}
	return address, nil
}

// loadConfig loads the file of --config, without what Caddy logs about it.
func (in *invocation) loadConfig() ([]byte, error) {
	_, usual, buffer := caddy.BufferedLog()
	defer caddy.UnbufferDefaultLogger(usual)
	config, _, _, err := caddycmd.LoadConfig(in.text("config"), in.text("adapter"))
	buffer.FlushTo(zap.NewNop())
	return config, err
}

// do sends a request to the management API of the running gateway, and decodes the answer into
// out.
func (in *invocation) do(r *request, out any) error {
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
func (in *invocation) send(r *request) (*http.Response, error) {
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
		dial, _, _ = strings.Cut(dial, "|") // without the socket's permissions
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
			return new(net.Dialer).DialContext(ctx, addr.Network, dial)
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

// download writes the answer to a request to w. what names the answer in errors.
func (in *invocation) download(r *request, w io.Writer, what string) error {
	resp, err := in.send(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("receiving %s: %w", what, err)
	}
	return nil
}

// refusal returns the error of a response of the management API or of another server. A change
// that edges have not confirmed is an error, too.
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
		return fmt.Errorf("%s is the address of a site, not of Caddy's admin endpoint, "+
			"whose usual address is localhost:2019", address)
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf(program.Named("the Caddy at %s has no model gateway; build it with the module "+
			"(`caddy list-modules` shows the modules of a program)"), address)
	}
	return fmt.Errorf("the server at %s answered HTTP %d; it may not be Caddy's admin endpoint, "+
		"whose usual address is localhost:2019", address, resp.StatusCode)
}

// url returns the base URL of the gateway's HTTP API for a sample request. It is a placeholder if
// the URL is not known.
func (in *invocation) url() string {
	var status manage.Status
	if in.do(in.newRequest("GET /status"), &status) != nil || status.URL == "" {
		return "https://YOUR-GATEWAY"
	}
	return status.URL
}
