package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/clients"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/text"
)

const (
	// testTimeout bounds the test request: a model may have to be loaded.
	testTimeout = 2 * time.Minute
	maxTraded   = 1 << 20 // bytes of an answer
)

// useFlags are the flags of the use command.
type useFlags struct {
	gateway, model, ca, pin, undo string
	yes, dryRun                   bool
}

func useCommand(sys system) *cobra.Command {
	var f useFlags
	command := &cobra.Command{
		Use:   "use CLIENT CODE --gateway URL",
		Short: "Set up a client, such as Claude Code, for a gateway",
		Long: `Trades a code for a new key, tests it, and merges the gateway, the key and the model
into the client's own settings file. Its comments and other settings stay. A copy of the
file is kept, for --undo. Without arguments, it lists the clients.

The code comes from "Set up a client" in the gateway's console. It works once and
expires after 15 minutes. A login or another provider that the client has is replaced
only after a question, or with --yes.

A certificate of a private authority is verified with --ca. A gateway without HTTPS
needs --pin; the key then crosses the network in clear text.

Exit codes: 0 success, 1 failure, 2 invalid flags, 3 the gateway refused the code.`,
		Example: `  connector use claude USE-XXXX-XXXX --gateway https://gateway.example.com
  connector use codex --gateway https://gateway.example.com --dry-run
  connector use --undo claude`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			ctx, stop := sys.signals(command.Context())
			defer stop()
			if len(args) == 0 && f.undo == "" {
				for _, c := range clients.All() {
					if len(c.Files) > 0 {
						fmt.Fprintf(sys.stdout, "%-10s %s\n", c.ID, c.Title)
					}
				}
				return nil
			}
			client, err := usable(append(args, f.undo)[0])
			switch {
			case err != nil:
				return err
			case f.undo != "" && len(args) > 0:
				return errors.New("--undo needs no other arguments")
			case f.undo != "":
				return undo(sys, client, f.yes)
			case f.gateway == "":
				return errors.New("--gateway: missing; give the gateway's URL, like --gateway https://gateway.example.com")
			case len(args) < 2 && !f.dryRun:
				return errors.New(`the code is missing; create one with "Set up a client" in the gateway's console`)
			}
			return use(ctx, sys, client, append(args, "")[1], f)
		},
	}
	flags := command.Flags()
	flags.StringVar(&f.gateway, "gateway", "", "`URL` of the gateway")
	flags.StringVar(&f.model, "model", "", "`NAME` of the model (default: that of the code)")
	flags.StringVar(&f.ca, "ca", "", "`FILE` with a certificate authority to trust in addition to the system's (PEM)")
	flags.StringVar(&f.pin, "pin", "", "`PIN` of a gateway without HTTPS")
	flags.StringVar(&f.undo, "undo", "", "restore the settings of a `CLIENT`")
	flags.BoolVar(&f.yes, "yes", false, "replace what is there without a question")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only show what would change; the code stays valid")
	return command
}

// usable returns the client with an id that has settings files.
func usable(id string) (clients.Client, error) {
	if c, _ := clients.Find(id); len(c.Files) > 0 {
		return c, nil
	}
	return clients.Client{}, fmt.Errorf("%q is not a client that this command sets up; `connector use` lists them",
		text.Short(id))
}

// use sets up a client.
func use(ctx context.Context, sys system, client clients.Client, code string, f useFlags) error {
	g, err := newUseGateway(ctx, f)
	if err != nil {
		return err
	}
	path, err := usedPath(client.ID, sys.getenv)
	if err != nil {
		return err
	}
	kept, err := loadUsed(path)
	if err != nil {
		return failed(err)
	}
	// Everything that can fail without the key is tried first: a code works once.
	values := clients.Values{Base: g.Origin(), Model: cmp.Or(f.model, "MODEL"), Key: "KEY"}
	files, _, err := merge(client, sys, values)
	if err != nil {
		return failed(err)
	}
	found := show(sys.stdout, files, kept, values, f.dryRun)
	if f.dryRun {
		return nil
	}
	if found && !f.yes && !agreed(sys, "Replace that?") {
		return failed(errors.New("nothing was changed; --yes replaces it without a question"))
	}
	for _, p := range append([]settings{{path: path}}, files...) {
		if err := (&config.Store{Path: p.path}).Prepare(); err != nil {
			return failed(err)
		}
	}
	traded, err := g.trade(ctx, client.ID, code)
	if err != nil {
		return err
	}
	if values, err = g.values(traded, f.model); err != nil {
		return failed(err)
	}
	if err := g.call(ctx, values, "key", nil); err != nil {
		return failed(fmt.Errorf("the new key does not work, and nothing was changed: %w", err))
	}
	files, after, err := merge(client, sys, values)
	if err != nil {
		return failed(err)
	}
	for _, step := range writing(path, kept, files, after) {
		if err := step(); err != nil {
			return failed(fmt.Errorf("%w; undo with `connector use --undo %s`", err, client.ID))
		}
	}
	for _, s := range files {
		fmt.Fprintf(sys.stdout, "%s now uses %s with the key %q. Changed: %s\n", client.Title, text.Short(values.Model),
			text.Short(traded.KeyName), s.path)
	}
	if err := g.test(ctx, values); err != nil {
		return failed(fmt.Errorf("the settings are written, but a test request failed: %w", err))
	}
	fmt.Fprintf(sys.stdout, "A test request was answered. To undo: connector use --undo %s\n", client.ID)
	return nil
}

// merge returns the settings of a client and their new texts.
func merge(c clients.Client, sys system, v clients.Values) (files []settings, after [][]byte, err error) {
	if files, err = settingsOf(c, sys.getenv); err != nil {
		return nil, nil, err
	}
	for _, s := range files {
		merged, err := s.Format.Merge(s.before, s.Members(v))
		if err != nil {
			return nil, nil, fmt.Errorf("%s was not changed: %w", s.path, err)
		}
		after = append(after, merged)
	}
	return files, after, nil
}

// show prints what is there and would be replaced or, for a dry run, all changes. It reports whether something is there
// that the command has not written.
func show(w io.Writer, files []settings, kept []used, v clients.Values, dryRun bool) (found bool) {
	for _, s := range files {
		ours := slices.ContainsFunc(kept, func(u used) bool { return u.Path == s.path && !u.Changed && u.ours(s.before) })
		if s.login != "" && !ours {
			found = true
			fmt.Fprintf(w, "A login is there, which this client will no longer use: %s\n", s.login)
		}
		changes, _ := s.Format.Changes(s.before, s.Members(v)) // it can be merged
		for _, c := range changes {
			name := strings.Join(c.Path, ".")
			if c.Old != nil && (dryRun || !ours) {
				found = true
				fmt.Fprintf(w, "%s - %s: %s\n", s.path, text.Short(name), shown(name, c.Old))
			}
			if dryRun && c.New != nil {
				fmt.Fprintf(w, "%s + %s: %s\n", s.path, text.Short(name), shown("", c.New))
			}
		}
	}
	return found
}

// secretName matches the names of members whose values are not shown.
var secretName = regexp.MustCompile(`(?i)key|token|secret|password|auth|header`)

// shown returns a value for a terminal: of a URL only the host, and nothing of a secret.
func shown(name string, value any) string {
	s := fmt.Sprint(value)
	if u, err := url.Parse(s); err == nil && u.Host != "" {
		s = u.Scheme + "://" + u.Host
	}
	if secretName.MatchString(name) {
		s = "…"
	}
	return text.Short(s)
}

// agreed asks on the terminal. Tests answer with other readers than files.
func agreed(sys system, question string) bool {
	if file, ok := sys.stdin.(*os.File); sys.stdin == nil || ok && !isTerminal(file) {
		return false
	}
	fmt.Fprintf(sys.stdout, "%s [y/N] ", question)
	line, _ := bufio.NewReader(io.LimitReader(sys.stdin, 100)).ReadString('\n')
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(line)), "y")
}

// undo restores the settings of a client.
func undo(sys system, client clients.Client, yes bool) error {
	path, err := usedPath(client.ID, sys.getenv)
	if err != nil {
		return err
	}
	kept, err := loadUsed(path)
	if err != nil {
		return failed(err)
	}
	if kept == nil {
		return failed(fmt.Errorf("`connector use` has not set up %s on this machine", client.Title))
	}
	for _, u := range kept {
		if u.foreign() && !yes {
			return failed(fmt.Errorf("%s was changed since; its former text is in %s; --yes restores it, and drops what was "+
				"changed", u.Path, path))
		}
	}
	for _, u := range kept {
		if err := u.restore(); err != nil {
			return failed(err)
		}
		fmt.Fprintf(sys.stdout, "Restored %s. The key stays valid until it is revoked in the console.\n", u.Path)
	}
	if err := os.Remove(path); err != nil {
		return failed(err)
	}
	return nil
}

// useGateway is the gateway that a client is set up for.
type useGateway struct{ *dial.Discovery }

func newUseGateway(ctx context.Context, f useFlags) (useGateway, error) {
	o := dial.DiscoveryOptions{CA: f.ca}
	plain := strings.HasPrefix(strings.ToLower(f.gateway), "http://")
	if plain { // a pin says nothing about a certificate of HTTPS
		o.Pin = f.pin
	}
	d, err := dial.NewDiscovery(f.gateway, o)
	if err != nil {
		return useGateway{}, err
	}
	if plain && f.pin != "" {
		if _, err := d.Find(ctx); err != nil {
			return useGateway{}, failed(err)
		}
	}
	d.Client().Timeout = testTimeout
	return useGateway{d}, nil
}

// trade trades a code for a key.
func (g useGateway) trade(ctx context.Context, client, code string) (t clients.Traded, err error) {
	machine, _ := os.Hostname()
	status, answer, err := g.send(ctx, g.Origin()+"/console/use", "", clients.Trade{
		Code: code, Client: client, Machine: machine,
	})
	switch {
	case err != nil:
		return t, failed(err)
	case status == http.StatusOK:
		if err = json.Unmarshal(answer, &t); err != nil || t.Key == "" || t.Base == "" || t.Model == "" {
			return t, failed(errors.New("the gateway's answer to the code is not the expected one; create a new code"))
		}
		return t, nil
	}
	return t, &exitError{exitRefused, errors.New("the gateway refused the code, and nothing was changed: " +
		said(status, answer))}
}

// values returns the values to set for a model.
func (g useGateway) values(t clients.Traded, model string) (clients.Values, error) {
	v := clients.Values{Base: t.Base, Key: t.Key, Model: cmp.Or(model, t.Model)}
	var names []string
	for _, m := range t.Models {
		if names = append(names, m.ID); m.ID == v.Model {
			v.Window, v.Judged = m.Window, m.Judged
			return v, nil
		}
	}
	return v, fmt.Errorf("the key cannot use the model %q, and nothing was changed; it can use: %s. Create a new code",
		text.Short(v.Model), text.Short(strings.Join(names, ", ")))
}

// test sends a short request to the model.
func (g useGateway) test(ctx context.Context, v clients.Values) error {
	return g.call(ctx, v, "chat/completions", map[string]any{
		"model": v.Model, "max_tokens": 16, "messages": []any{map[string]string{"role": "user", "content": "Say hello."}},
	})
}

// call sends a request of the API with the new key, to where the client will send its requests.
func (g useGateway) call(ctx context.Context, v clients.Values, path string, body any) error {
	status, answer, err := g.send(ctx, v.Base+"/v1/"+path, v.Key, body)
	if err == nil && status != http.StatusOK {
		err = errors.New(strings.ReplaceAll(said(status, answer), v.Key, "KEY"))
	}
	return err
}

// send sends a request, and returns the status and the body of the answer.
func (g useGateway) send(ctx context.Context, address, key string, body any) (status int, answer []byte, err error) {
	method, data := http.MethodGet, []byte(nil)
	if body != nil {
		method = http.MethodPost
		if data, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(data))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := g.Client().Do(request)
	if err != nil {
		return 0, nil, dial.ExplainHTTPS(ctx, request.URL, err)
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxTraded))
	return response.StatusCode, answer, err
}

// said returns the text of an error of the console or of the API.
func said(status int, answer []byte) string {
	var console struct {
		Error string `json:"error"`
	}
	var api struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	_, _ = json.Unmarshal(answer, &console), json.Unmarshal(answer, &api)
	return text.Short(cmp.Or(console.Error, api.Error.Message, fmt.Sprintf("status %d", status)))
}
