package caddymodule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

// adminClient calls the management API of a running gateway.
type adminClient struct {
	address string // a Caddy network address
}

// newAdminClient finds the admin endpoint as Caddy's own commands do.
func newAdminClient(cmd *cobra.Command) (adminClient, error) {
	address, err := caddycmd.DetermineAdminAPIAddress(flagValue(cmd, "address"), nil, flagValue(cmd, "config"), flagValue(cmd, "adapter"))
	if err != nil {
		return adminClient{}, usagef("finding the admin endpoint: %w", err)
	}
	return adminClient{address: address}, nil
}

// call performs one operation: body is sent as JSON unless it is nil, and the
// answer is decoded into out.
func (c adminClient) call(method, path string, body, out any) error {
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		payload = bytes.NewReader(data)
	}
	resp, err := caddycmd.AdminAPIRequest(c.address, method, adminPrefix+path, nil, payload)
	if err != nil {
		return c.explain(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("reading the answer of the gateway at %s: %w", c.address, err)
	}
	return nil
}

// explain turns an error of Caddy's admin client into what happened and what
// to do. That client returns flat text, with the answer's body at its end.
func (c adminClient) explain(err error) error {
	if cause, ok := strings.CutPrefix(err.Error(), "performing request: "); ok {
		return fmt.Errorf("no gateway answers at %s: %s\nStart it with `caddy run --config Caddyfile` or `caddy gateway up`, or name its admin endpoint with --address", c.address, cause)
	}
	answer, ok := strings.CutPrefix(err.Error(), "caddy responded with error: HTTP ")
	if !ok {
		return err
	}
	status, body, _ := strings.Cut(answer, ": ")
	var parsed struct {
		Error string `json:"error"`
	}
	if json.Unmarshal([]byte(body), &parsed) == nil && parsed.Error != "" {
		return errors.New(printableLines(parsed.Error))
	}
	if status == "404" {
		return fmt.Errorf("the Caddy at %s does not know the model gateway; it must be built with it, as `caddy list-modules` of that program shows", c.address)
	}
	return fmt.Errorf("the server at %s answered HTTP %s", c.address, status)
}

// printableLines is [printable] for text of several lines.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = printable(line)
	}
	return strings.Join(lines, "\n")
}

// itemPath is the path of one record. Its name may hold any character, and
// dot segments would be lost on the way.
func itemPath(collection, name, account string) string {
	path := collection + "/" + strings.ReplaceAll(url.PathEscape(name), ".", "%2E")
	return withAccount(path, account)
}

// withAccount adds the account to a path, unless it is the default one.
func withAccount(path, account string) string {
	if account == "" {
		return path
	}
	return withQuery(path, "account="+url.QueryEscape(account))
}

// withQuery adds a parameter to a path.
func withQuery(path, parameter string) string {
	if strings.Contains(path, "?") {
		return path + "&" + parameter
	}
	return path + "?" + parameter
}
