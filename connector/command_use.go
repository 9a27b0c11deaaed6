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
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/clients"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/tty"
	"github.com/postern-dev/postern/connector/window"
)

// testTimeout bounds the test request: a model may have to be loaded.
const testTimeout = 2 * time.Minute

// useFlags are the flags of the use command.
type useFlags struct {
	gateway, ca, pin  string
	yes, dryRun, undo bool
}

func useCommand(sys system) *cobra.Command {
	var f useFlags
	command := &cobra.Command{
		Use:   "use CLIENT CODE --gateway URL",
		Short: "Set up a client, such as Claude Code, for a gateway",
		Long: `Trades a code for a new key, tests it, and merges the gateway, the key and the model
into the client's own settings file. Its comments and other settings stay. A copy of the
file is kept, for --undo. CLIENT is one of ` + usable + `.

The code comes from "Set up a client" in the gateway's console. It works once and
expires after 15 minutes. A login or another provider that the client has is replaced
only after a question, or with --yes. A gateway without HTTPS needs --pin; the key then
crosses the network in clear text.

Exit codes: 0 success, 1 failure, 2 invalid flags, 3 the gateway refused the code.`,
		Example: `  connector use claude USE-XXXX-XXXX --gateway https://gateway.example.com
  connector use codex --gateway https://gateway.example.com --dry-run
  connector use claude --undo`,
		Args: cobra.MaximumNArgs(2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			all := clients.WithFile()
			return all[:len(all)*max(0, 1-len(args))], cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(command *cobra.Command, args []string) error {
			ctx, stop := sys.signals(command.Context())
			defer stop()
			args = append(args, "", "")
			client := clients.Find(args[0])
			switch {
			case client.File == nil:
				return fmt.Errorf("CLIENT: %q is not one of %s", text.Short(args[0]), usable)
			case f.undo:
				return undo(sys, client, f.yes)
			case f.gateway == "":
				return errors.New("--gateway: missing; give the gateway's URL, like --gateway https://gateway.example.com")
			case args[1] == "" && !f.dryRun:
				return errors.New(`the code is missing; create one with "Set up a client" in the gateway's console`)
			}
			return setUp(ctx, sys, client, args[1], f)
		},
	}
	flags := command.Flags()
	flags.StringVar(&f.gateway, "gateway", "", "`URL` of the gateway")
	flags.StringVar(&f.ca, "ca", "", "`FILE` with a certificate authority to trust in addition to the system's (PEM), or "+
		"sha256:HASH of the gateway's root certificate, which is then loaded and kept")
	flags.StringVar(&f.pin, "pin", "", "`PIN` of a gateway without HTTPS")
	flags.BoolVar(&f.yes, "yes", false, "replace what is there without a question")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only show what would change; the code stays valid")
	flags.BoolVar(&f.undo, "undo", false, "restore the client's former settings")
	return command
}

// usable are the clients with a file.
var usable = strings.Join(clients.WithFile(), ", ")

// undoHint is printed after a set-up. It names no path: a script may have run this program.
const undoHint = "To undo: the same line with --undo in place of the code"

// setUp sets up a client.
func setUp(ctx context.Context, sys system, client clients.Client, code string, f useFlags) error {
	authority, err := keepRoot(ctx, sys, &f)
	if err != nil {
		return err
	}
	g, err := useGateway(ctx, f)
	if err != nil {
		return err
	}
	s, err := settingsOf(client, sys.getenv, false)
	if err != nil {
		return failed(err)
	}
	// Everything that can fail without the key is tried first: a code works once.
	values := clients.Values{Base: g.Origin(), Model: "(the model of the code)", Key: "(a new key)", CA: authority}
	_, changes, err := s.Format.Merge(s.before, s.Members(values))
	if err != nil {
		return failed(fmt.Errorf("%s cannot be changed: %w", s.path, err))
	}
	found := s.printChanges(sys.stdout, changes, f.dryRun)
	switch {
	case f.dryRun:
		fmt.Fprintln(sys.stdout, "Nothing was changed. The code was not checked.")
		return nil
	case found && !f.yes && !agreed(sys):
		return failed(errors.New("nothing was changed; --yes replaces it without a question"))
	}
	err = errors.Join((&config.Store{Path: s.backupPath}).Prepare(), (&config.Store{Path: s.path}).Prepare())
	if err != nil {
		return failed(err)
	}
	traded, err := trade(ctx, g, client.ID, code)
	if err != nil {
		return err
	}
	traded.CA = values.CA
	if traded.Base != g.Origin() {
		fmt.Fprintf(sys.stdout, "Its requests go to %s, as %s says.\n", traded.Base, g.Origin())
	}
	if err := testRequest(ctx, g, traded.Values); err != nil {
		return failed(fmt.Errorf("nothing was changed, and the code is used: create a new one. A test request failed: %w",
			err))
	}
	if err := s.write(traded); err != nil {
		return failed(fmt.Errorf("%w. %s", err, undoHint))
	}
	fmt.Fprintf(sys.stdout, "A test request was answered. %s now uses %s with the key %q. Changed: %s\n%s.\n",
		client.Title, traded.Model, text.Short(traded.KeyName), s.path, undoHint)
	if guess := traded.Guess(); guess != "" {
		fmt.Fprintln(sys.stdout, guess)
	}
	if small := client.Warning(traded.Values); small != "" {
		fmt.Fprintf(sys.stdout, "Warning: %s Choose another model with a new code.\n", small)
	}
	if traded.CA != "" && s.CAEnv != "" {
		fmt.Fprintf(sys.stdout, "Its settings cannot name the gateway's authority. Set the environment variable "+
			"%s=%s for it, or let this machine trust the authority.\n", s.CAEnv, traded.CA)
	}
	return nil
}

// printChanges prints which existing members would be replaced or, for a dry run, all changes. It reports whether
// something exists that the command has not written.
func (s *settings) printChanges(w io.Writer, changes []clients.Change, dryRun bool) (found bool) {
	unchanged := s.isUnchanged()
	login := filepath.Join(filepath.Dir(s.path), s.Login)
	if _, err := os.Stat(login); err == nil && s.Login != "" && !unchanged {
		found = true
		fmt.Fprintf(w, "A login is there, which this client will no longer use: %s\n", login)
	}
	for _, c := range changes {
		what := "sets"
		if c.New == nil {
			what = "removes"
		}
		if dryRun || c.Old != nil && !unchanged {
			found = found || c.Old != nil
			fmt.Fprintf(w, "%s: %s %s%s\n", s.path, what, text.Short(strings.Join(c.Path, ".")), formerProvider(c))
		}
	}
	return found
}

// formerProvider returns the provider or model that a change replaces, or "". Other values may be secrets.
func formerProvider(c clients.Change) string {
	old, _ := c.Old.(string)
	u, err := url.Parse(old)
	switch {
	case err == nil && u.Host != "":
		old = u.Scheme + "://" + u.Host
	case old == "" || len(c.Path) > 1 || c.New == nil: // the names of both are members of the root
		return ""
	}
	return " (was " + text.Short(old) + ")"
}

// agreed asks on the terminal whether to replace what was shown. Tests answer with other readers than files.
func agreed(sys system) bool {
	if file, ok := sys.stdin.(*os.File); sys.stdin == nil || ok && !tty.Is(file) {
		return false
	}
	fmt.Fprint(sys.stdout, "Replace that? [y/N] ")
	line, _ := bufio.NewReader(io.LimitReader(sys.stdin, 100)).ReadString('\n')
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(line)), "y")
}

// undo restores the settings of a client.
func undo(sys system, client clients.Client, yes bool) error {
	s, err := settingsOf(client, sys.getenv, true)
	switch {
	case err != nil:
		return failed(err)
	case s.isOriginal(): // it may be a file that cannot be written
	case s.mode != 0 && !s.isUnchanged() && !yes:
		return failed(fmt.Errorf("%s was changed since; its former text is in %s; --yes restores it, and drops what was "+
			"changed", s.path, s.backupPath))
	case s.backup.Mode != 0:
		err = config.Replace(s.path, s.backup.Original, s.backup.Mode)
	default:
		err = os.Remove(s.path)
	}
	if err == nil {
		config.RemoveStaged(s.path, 0) // with a key, of a process that was killed
		err = os.Remove(s.backupPath)
	}
	if err != nil {
		return failed(err)
	}
	fmt.Fprintf(sys.stdout, "Restored %s. The key %q stays valid until it is revoked in the console.\n", s.path,
		text.Short(s.backup.KeyName))
	return nil
}

// keepRoot returns the absolute path of the file of --ca, "" for none. For a hash, it loads the root certificate of the
// gateway, and keeps it for the client next to the connector's configuration. A dry run only names the file.
func keepRoot(ctx context.Context, sys system, f *useFlags) (string, error) {
	sum, isHash := strings.CutPrefix(f.ca, "sha256:")
	if f.ca == "" {
		return "", nil
	} else if !isHash {
		return filepath.Abs(f.ca)
	}
	name := clients.Values{Base: f.gateway}.Provider() + ".crt"
	path, err := filepath.Abs(filepath.Join(filepath.Dir(config.DefaultPath(sys.getenv)), name))
	if f.ca = path; f.dryRun || err != nil {
		f.ca = ""
		return path, err
	}
	root, err := dial.Root(ctx, f.gateway, sum)
	if err == nil {
		err = config.Replace(path, root, 0o644)
	}
	if err != nil {
		return "", failed(err)
	}
	return path, nil
}

// useGateway returns the gateway that a client is set up for.
func useGateway(ctx context.Context, f useFlags) (*dial.Discovery, error) {
	o := dial.DiscoveryOptions{CA: f.ca}
	if strings.HasPrefix(strings.ToLower(f.gateway), "http://") { // a pin says nothing about a certificate of HTTPS
		o.Pin = f.pin
	}
	g, err := dial.NewDiscovery(f.gateway, o)
	if err != nil {
		return nil, err
	}
	if o.Pin != "" {
		if _, err := g.Find(ctx); err != nil {
			return nil, failed(err)
		}
	}
	g.Client().Timeout = testTimeout
	return g, nil
}

// tradedValues are the base, the key and the model that a gateway may send.
var tradedValues = regexp.MustCompile(
	`^https?://[\w.:[\]-]+(/[\w.~/-]*)? sk-svc-[0-9A-Za-z]{1,64} [\w.:/@+-]{1,128}$`)

// trade trades a code for a key.
func trade(ctx context.Context, g *dial.Discovery, client, code string) (t clients.Traded, err error) {
	machine, _ := os.Hostname()
	request := clients.Trade{Code: code, Client: client, Machine: machine}
	answer, err := post(ctx, g, g.Origin()+"/console/use", "", request)
	if err != nil {
		return t, fmt.Errorf("nothing was changed: %w", err)
	}
	if err = json.Unmarshal(answer, &t); err != nil || t.Window < 0 || t.Window > window.Max ||
		!tradedValues.MatchString(t.Base+" "+t.Key+" "+t.Model) {
		err = failed(errors.New("the gateway's answer to the code is not the expected one; create a new code"))
	}
	return t, err
}

// testRequest sends a short request to the model, to where the client will send its requests.
func testRequest(ctx context.Context, g *dial.Discovery, v clients.Values) error {
	_, err := post(ctx, g, v.Base+"/v1/chat/completions", v.Key, map[string]any{
		"model": v.Model, "max_tokens": 16, "messages": []any{map[string]string{"role": "user", "content": "Say hello."}},
	})
	if err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), v.Key, "KEY"))
	}
	return err
}

// post sends a request with a key, if there is one, and returns the body of the answer.
func post(ctx context.Context, g *dial.Discovery, address, key string, body any) ([]byte, error) {
	data, _ := json.Marshal(body) // of strings and numbers
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(data))
	if err != nil {
		return nil, failed(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	var answer []byte
	response, err := g.Client().Do(request)
	if err == nil {
		defer response.Body.Close()
		answer, err = io.ReadAll(io.LimitReader(response.Body, 1<<20))
	}
	switch {
	case err != nil:
		return nil, failed(g.Explain(ctx, request.URL, err, ""))
	case response.StatusCode != http.StatusOK:
		var failure struct {
			Error any `json:"error"` // the text; an object of the API
		}
		_ = json.Unmarshal(answer, &failure) // without a text, the status has to do
		if object, ok := failure.Error.(map[string]any); ok {
			failure.Error = object["message"]
		}
		reason, _ := failure.Error.(string)
		if response.StatusCode == http.StatusTooManyRequests && key == "" {
			reason += " The code stays valid."
		}
		reason = text.Short(cmp.Or(reason, response.Status))
		return nil, &exitError{exitRefused, errors.New("the gateway answered: " + reason)}
	}
	return answer, nil
}
