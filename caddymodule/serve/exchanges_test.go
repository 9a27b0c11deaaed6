package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/turns"
)

var update = flag.Bool("update", false, "write the golden files again")

// prompt is a text of requests that must not be in a log, a metric or the activity.
const prompt = "quartz-sphinx"

// TestExchanges plays the scripts of testdata/exchanges. Each sends requests through
// all handlers, answers them as the model server would, and compares what the client
// and the model server received, what was logged, counted and recorded, and when.
//
// A script begins with comments and settings ("set NAME VALUE", see [exchanges.set]).
// A request follows, then the answers of upstreams to it, one section each, and the
// result. A head has a line and header fields, then an empty line. $KEY, $OTHER and
// $SCOPED are keys, the last for "other*" only, and $STRANGER that of another account,
// which has a deployment of the setting "stranger"; $RESPONSE, $ITEM and $SEAL are the last
// that a client received. A body is compressed as its Content-Encoding says.
// [upstreamScript] explains the marks in answers.
func TestExchanges(t *testing.T) {
	files, err := filepath.Glob("testdata/exchanges/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("finding exchanges: %v, %d files", err, len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, string(want)) })
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// The lines between sections of a script.
const (
	requestLine  = "== request ==\n"
	upstreamLine = "== upstream ==\n"
	resultLine   = "== result ==\n"
)

// play plays a script and returns it with its results.
func play(t *testing.T, script string) string {
	head, rest, _ := strings.Cut(script, requestLine)
	e := newExchanges(t, head)
	var out strings.Builder
	out.WriteString(head)
	for step := range strings.SplitSeq(rest, requestLine) {
		source, _, ok := strings.Cut(step, resultLine)
		if !ok {
			t.Fatalf("a request without a result: %s", step)
		}
		sections := strings.Split(source, upstreamLine)
		out.WriteString(requestLine + source + resultLine + e.exchange(sections[0], sections[1:]))
	}
	return out.String()
}

// stranger is an account that is not the default one.
const stranger = "elsewhere"

// exchanges is a gateway whose tunnels lead to a script.
type exchanges struct {
	*testing.T
	*testGateway
	keys    map[string]string // by variable
	seen    map[string]string // ids that the client received, by variable
	ids     map[string]string // names of connectors, by id
	answers []string          // sections of the script that no request has fetched
	ex      *Exchange         // of the running request
	leave   context.CancelFunc
	log     bytes.Buffer // what the model servers received, in part
	events  bytes.Buffer // log entries and metrics
}

func newExchanges(t *testing.T, head string) *exchanges {
	e := &exchanges{
		T: t, testGateway: newGateway(t, 64<<20), keys: map[string]string{}, seen: map[string]string{},
		ids: map[string]string{},
	}
	e.keys["$KEY"] = e.secret
	for name, scope := range map[string]string{"$OTHER": "*", "$SCOPED": "other*"} {
		_, e.keys[name] = e.newKey(t, store.DefaultAccount, scope)
	}
	if _, err := e.backend.Store.CreateAccount(t.Context(), stranger); err != nil {
		t.Fatal(err)
	}
	_, e.keys["$STRANGER"] = e.newKey(t, stranger, "*")
	d, _ := e.backend.Store.Deployment(store.DefaultAccount, "m")
	e.ids[d.Connectors[0]] = "box"
	server := e.Translator.Server
	server.Observer = e
	e.backend.Turns = turns.New(e.turnsOf)
	e.backend.connectors.turns = e.backend.Turns
	server.Logger = slog.New(slog.NewTextHandler(&e.events,
		&slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
	e.KeepAlive, e.router.ConnectWait = DefaultKeepAlive, DefaultConnectWait
	for line := range strings.Lines(head) {
		if setting, ok := strings.CutPrefix(line, "set "); ok {
			name, value, _ := strings.Cut(strings.TrimSpace(setting), " ")
			e.set(&d, name, value)
		}
	}
	return e
}

// set changes an option of a handler or of the deployment m.
func (e *exchanges) set(d *store.Deployment, name, value string) {
	var err error
	switch name {
	case "max_body":
		e.MaxBody, err = strconv.ParseInt(value, 10, 64)
	case "response_store":
		e.ResponseStore = value
	case "keep_alive":
		e.KeepAlive, err = time.ParseDuration(value)
	case "queue_length":
		e.router.QueueLength, err = strconv.Atoi(value)
	case "queue_wait":
		e.router.QueueWait, err = time.ParseDuration(value)
	case "limits": // of the request's key
		_, err = e.backend.Store.EditKey(e.Context(), store.DefaultAccount, e.key.ID(), func(k *store.Key) error {
			return json.Unmarshal([]byte(value), &k.Limits)
		})
	case "account_limits":
		_, err = e.backend.Store.SetAccount(e.Context(), store.DefaultAccount, func(a *store.Account) {
			err = json.Unmarshal([]byte(value), &a.Limits)
		})
	case "group": // a new one, to which the request's key is given
		g := store.GroupFields{}
		err = json.Unmarshal([]byte(value), &g)
		_, failed := e.backend.Store.CreateGroup(e.Context(), store.DefaultAccount, g)
		_, edited := e.backend.Store.EditKey(e.Context(), store.DefaultAccount, e.key.ID(), func(k *store.Key) error {
			k.Group = g.Name
			return nil
		})
		err = errors.Join(err, failed, edited)
	case "ungroup": // removes the group
		_, err = e.backend.Store.RemoveGroup(e.Context(), store.DefaultAccount, value)
	case "options":
		err = json.Unmarshal([]byte(value), &d.Options)
	case "also_as":
		d.AlsoAs = strings.Fields(value)
	case "model":
		d.Model = value
	case "default_model": // of the request's key
		_, err = e.backend.Store.EditKey(e.Context(), store.DefaultAccount, e.key.ID(), func(k *store.Key) error {
			k.DefaultModel = value
			return nil
		})
	case "max_concurrency":
		d.MaxConcurrency, err = strconv.Atoi(value)
	case "connector": // another one that has m
		var c store.Connector
		c, _, err = e.backend.Store.CreateConnector(e.Context(), store.DefaultAccount, value)
		d.Connectors = append(slices.Clone(d.Connectors), c.ID)
		e.ids[c.ID] = value
	case "stranger": // a deployment of the other account, on a connector of its own
		var c store.Connector
		if c, _, err = e.backend.Store.CreateConnector(e.Context(), stranger, "den"); err == nil {
			e.ids[c.ID] = c.Name
			_, err = e.backend.Store.SetDeployment(e.Context(),
				store.Deployment{Account: stranger, Name: value, Connectors: []string{c.ID}})
		}
	case "deployment": // another one
		_, err = e.backend.Store.SetDeployment(e.Context(),
			store.Deployment{Account: store.DefaultAccount, Name: value, Connectors: d.Connectors})
	case "fallback": // of m, another one
		var c store.Connector
		c, _, err = e.backend.Store.CreateConnector(e.Context(), store.DefaultAccount, "spare")
		e.ids[c.ID] = c.Name
		other := store.Deployment{Account: store.DefaultAccount, Connectors: []string{c.ID}}
		err = errors.Join(err, json.Unmarshal([]byte(value), &other))
		d.Fallback = other.Name
		for _, set := range []store.Deployment{
			{Account: d.Account, Name: other.Name, Connectors: other.Connectors}, *d, other,
		} {
			if err == nil { // another kind is not accepted at first
				_, err = e.backend.Store.SetDeployment(e.Context(), set)
			}
		}
	case "remove":
		_, err = e.backend.Store.RemoveDeployment(e.Context(), store.DefaultAccount, value)
	case "embeddings": // another one, for embeddings
		_, err = e.backend.Store.SetDeployment(e.Context(), store.Deployment{
			Account: store.DefaultAccount, Name: value, Connectors: d.Connectors, Kind: store.EmbeddingsModel,
		})
	case "revoke": // the request's key, after a time
		var after time.Duration
		after, err = time.ParseDuration(value)
		time.AfterFunc(after, func() {
			if _, err := e.backend.Store.RevokeKey(context.Background(), store.DefaultAccount, e.key.ID()); err != nil {
				e.Error(err)
			}
		})
	case "window": // that the model server lists
		e.route.State = health.Available
		e.route.Window, err = strconv.Atoi(value)
	case "strict": // it lists it as servers do that check the room for answers
		e.route.Strict = value == "yes"
	case "taken": // a place, by a request of another key
		e.online()
		var place *turns.Place
		place, err = e.backend.Turns.Wait(e.Context(), &turns.Request{
			Account: d.Account, Deployment: d.Name, Client: fair.Client{Key: "other"},
		})
		e.Cleanup(place.Leave)
	default:
		e.Fatalf("unknown setting %s", name)
	}
	if err == nil {
		_, err = e.backend.Store.SetDeployment(e.Context(), *d)
	}
	if err != nil {
		e.Fatalf("%s %s: %v", name, value, err)
	}
}

// exchange sends a request and returns its result.
func (e *exchanges) exchange(source string, answers []string) string {
	e.answers = answers
	e.online()
	e.log.Reset()
	e.events.Reset()
	for _, variables := range []map[string]string{e.keys, e.seen} {
		for name, value := range variables {
			source = strings.ReplaceAll(source, name, value)
		}
	}
	line, header, body := readHead(source)
	method, path, _ := strings.Cut(line, " ")
	ctx, leave := context.WithCancel(e.Context())
	defer leave()
	e.leave = leave
	sent := []byte(strings.TrimSuffix(body, "\n"))
	switch header.Get("Content-Encoding") {
	case "gzip":
		sent = gzipped(e.T, sent)
	case "zstd":
		sent = zstded(e.T, sent)
	}
	r := httptest.NewRequestWithContext(ctx, method, path, bytes.NewReader(sent))
	r.Header = header
	if len(header["Authorization"])+len(header["X-Api-Key"])+len(header["Api-Key"]) == 0 {
		header.Set("Authorization", "Bearer "+e.secret)
	}
	e.ex = NewExchange()
	w := &client{header: http.Header{}}
	before := map[string]bool{} // ids
	for _, account := range []string{store.DefaultAccount, stranger} {
		for _, r := range e.backend.Activity.Recent(account) {
			before[r.ID] = true
		}
	}
	Serve(w, r, e.ex, e.Translator, e.router)
	synctest.Wait() // until samples are processed
	if len(e.answers) != 0 {
		e.Errorf("%d answers were not fetched: %s", len(e.answers), w)
	}
	e.returned(e.T)
	recorded := e.recorded(before)
	if strings.Contains(recorded, prompt) {
		e.Errorf("the prompt was recorded: %s", recorded)
	}
	for name, secret := range e.keys {
		if strings.Contains(recorded+w.String(), secret) {
			e.Errorf("%s was recorded or sent to the client: %s%s", name, recorded, w)
		}
	}
	e.keep(w.body.String())
	return e.stable(fmt.Sprintf("%s-- %s\n%s", e.log.String(), w, recorded))
}

// recorded returns the log entries and metrics of a request, the fields for the access
// log, and its entry in the activity.
func (e *exchanges) recorded(before map[string]bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "-- recorded --\n%s", &e.events)
	if e.ex.Key == nil {
		for _, account := range []string{store.DefaultAccount, stranger} {
			for _, r := range e.backend.Activity.Recent(account) {
				if r.ID == e.ex.RequestID {
					fmt.Fprintf(&b, "activity: %s\n", entryOf(e.T, r))
				}
			}
		}
		return b.String()
	}
	b.WriteString("access:")
	for _, name := range []string{"key_id", "dialect", "model", "deployment", "connector"} {
		value, _ := e.ex.Placeholder("http.model_gateway." + name)
		fmt.Fprintf(&b, " %s=%v", name, value)
	}
	account := e.ex.Account
	added := slices.DeleteFunc(e.backend.Activity.Recent(account), func(r activity.Request) bool { return before[r.ID] })
	// All may be of the same millisecond: the request is before the one to its judge.
	if i := slices.IndexFunc(added, func(r activity.Request) bool { return r.ID == e.ex.RequestID }); i > 0 {
		added[0], added[i] = added[i], added[0]
	}
	fmt.Fprintf(&b, " reason=%s\n", e.ex.Reason)
	for i, r := range added { // the request before the one to its judge
		r.Refusals, r.IDs = 0, nil // an entry counts those of a minute
		if (i == 0) != (r.ID == e.ex.RequestID) || i > 0 && r.Operation != dialect.Judging.Name() {
			e.Fatalf("entry %d of %d is %s", i, len(added), entryOf(e.T, r))
		}
		if i == 0 && r.Outcome() != e.ex.Outcome {
			e.Errorf("the access log has the outcome %q, the activity %q", e.ex.Outcome, r.Outcome())
		}
		fmt.Fprintf(&b, "activity: %s\n", entryOf(e.T, r))
	}
	return b.String()
}
