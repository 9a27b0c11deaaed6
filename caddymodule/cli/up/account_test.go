package up

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

// noTunnels is a hub without tunnels.
type noTunnels struct{}

func (noTunnels) Sessions() []tunnel.Info             { return nil }
func (noTunnels) Counters() tunnel.Counters           { return tunnel.Counters{} }
func (noTunnels) Tunnel(string) (manage.Tunnel, bool) { return nil, false }

func (noTunnels) Choose([]string, tunnel.Target) (string, manage.Tunnel, bool) { return "", nil, false }

// asOperator returns the context of the operations of `caddy gateway up`.
func asOperator(t *testing.T) context.Context {
	t.Helper()
	return manage.WithCaller(t.Context(), manage.Caller{Name: "test", Operator: true})
}

// newAccount returns the account of a new up.db, and a pointer to its address.
func newAccount(t *testing.T) (local account, st *store.Store, public *string) {
	t.Helper()
	kv, err := store.OpenBolt(filepath.Join(t.TempDir(), "up.db"), store.BoltOptions{})
	if err != nil {
		t.Fatal(err)
	}
	st, err = store.New(kv, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	key, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	_, pin, err := link.Identity(key)
	if err != nil {
		t.Fatal(err)
	}
	public = new("127.0.0.1:7443")
	service := manage.New(manage.Options{
		Store: st, Tunnels: noTunnels{},
		Endpoint: func() manage.Endpoint { return manage.Endpoint{Public: *public, Pin: pin} },
	})
	return account{service}, st, public
}

// wantToken checks the server of a token, and that it authenticates the connector.
func wantToken(t *testing.T, st *store.Store, id, token, server string) {
	t.Helper()
	parsed, err := link.ParseToken(token)
	if err != nil {
		t.Fatal(err)
	}
	if parsed.Server != server || parsed.Connector != id {
		t.Errorf("the token is for %s at %s, want %s at %s", parsed.Connector, parsed.Server, id, server)
	}
	if _, err := st.AuthenticateConnector(id, parsed.Secret); err != nil {
		t.Errorf("the token's secret does not authenticate: %v", err)
	}
}

func TestUpConnectorIsReused(t *testing.T) {
	account, st, public := newAccount(t)
	id, token, err := account.connector(asOperator(t))
	if err != nil {
		t.Fatal(err)
	}
	wantToken(t, st, id, token, "127.0.0.1:7443")

	*public = "127.0.0.1:40001" // another run got another port
	again, token, err := account.connector(asOperator(t))
	if err != nil {
		t.Fatal(err)
	}
	if again != id {
		t.Errorf("the connector is %s, was %s", again, id)
	}
	wantToken(t, st, id, token, "127.0.0.1:40001")
}

// If another device replaced the connector, it stays: the run uses the next name, also
// in later runs.
func TestUpConnectorOfAnotherDevice(t *testing.T) {
	account, st, _ := newAccount(t)
	first, _, err := account.connector(asOperator(t))
	if err != nil {
		t.Fatal(err)
	}
	_, code, err := st.CreatePairing(t.Context(), store.DefaultAccount, "test")
	if err != nil {
		t.Fatal(err)
	}
	device := store.Device{Hostname: "rack", Fingerprint: "3f9a", At: time.Now()}
	if _, err := st.ClaimPairing(t.Context(), code, strings.Repeat("s", 43), device); err != nil {
		t.Fatal(err)
	}
	if _, _, err := st.ReplaceConnector(t.Context(), store.DefaultAccount, code, first, "test"); err != nil {
		t.Fatal(err)
	}
	var ids [2]string
	for i := range ids {
		var token string
		if ids[i], token, err = account.connector(asOperator(t)); err != nil {
			t.Fatal(err)
		}
		wantToken(t, st, ids[i], token, "127.0.0.1:7443")
	}
	if c, _ := st.Connector(ids[0]); c.Name != ownName+"-2" || ids[0] != ids[1] || len(st.Connectors(store.DefaultAccount)) != 2 {
		t.Errorf("the connectors are %s %q and %s", ids[0], c.Name, ids[1])
	}
}

func TestUpPublish(t *testing.T) {
	account, st, _ := newAccount(t)
	local, _, err := account.connector(asOperator(t))
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := st.CreateConnector(asOperator(t), store.DefaultAccount, "other")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []store.Deployment{
		{Name: "gone", Connectors: []string{local}, Model: "gone"},                        // of a former run
		{Name: "old-file.gguf", Connectors: []string{local}, Model: "/x y/old file.gguf"}, // likewise, with a changed name
		{Name: "alias", Connectors: []string{local}, Model: "gone"},                       // of the user
		{Name: "elsewhere", Connectors: []string{other.ID}, Model: "elsewhere"},           // likewise
		{Name: "both", Connectors: []string{local, other.ID}, Model: "both"},
		{Name: "qwen3:8b", Connectors: []string{local}, MaxConcurrency: 4, Options: compat.Options{ThinkTags: true}},
	} {
		d.Account = store.DefaultAccount
		if _, err := st.SetDeployment(asOperator(t), d); err != nil {
			t.Fatal(err)
		}
	}

	var ready Ready
	models := []string{"elsewhere", "both", "qwen3:8b", "/m/My Model.gguf", "/n/My Model.gguf", "日本語"}
	if err := account.publish(asOperator(t), local, models, &ready); err != nil {
		t.Fatal(err)
	}
	if want := []string{"qwen3:8b", "My-Model.gguf", "elsewhere", "both"}; !reflect.DeepEqual(ready.Models, want) {
		t.Errorf("models = %q, want %q", ready.Models, want)
	}
	wantNotes(t, ready.Notes,
		`model "elsewhere" is not published: the deployment of that name uses another connector`,
		`model "/m/My Model.gguf" is published as My-Model.gguf`,
		`model "/n/My Model.gguf" is not published`,
		`model "日本語" is not published`)

	var names []string
	for _, d := range st.Deployments(store.DefaultAccount) {
		names = append(names, d.Name+">"+d.Model)
	}
	want := []string{"My-Model.gguf>/m/My Model.gguf", "alias>gone", "both>both", "elsewhere>elsewhere", "qwen3:8b>qwen3:8b"}
	slices.Sort(names)
	slices.Sort(want)
	if !reflect.DeepEqual(names, want) {
		t.Errorf("deployments = %q\nwant          %q", names, want)
	}
	// Settings of the user stay.
	if d, _ := st.Deployment(store.DefaultAccount, "qwen3:8b"); d.MaxConcurrency != 4 || !d.Options.ThinkTags {
		t.Errorf("the bound and the options of a model are lost: %+v", d)
	}
}

func TestUpPublishNothing(t *testing.T) {
	account, _, _ := newAccount(t)
	local, _, err := account.connector(asOperator(t))
	if err != nil {
		t.Fatal(err)
	}
	err = account.publish(asOperator(t), local, []string{"日本語"}, new(Ready))
	if err == nil || !strings.Contains(err.Error(), "日本語") {
		t.Errorf("error = %v", err)
	}
}

// Each run has a new key; those of former runs are removed, others stay.
func TestUpKey(t *testing.T) {
	account, st, _ := newAccount(t)
	_, laptop, err := st.CreateKey(asOperator(t), store.DefaultAccount, "laptop", "*")
	if err != nil {
		t.Fatal(err)
	}
	var first, second Ready
	if err := account.newKey(asOperator(t), &first); err != nil {
		t.Fatal(err)
	}
	if len(first.Notes) != 0 {
		t.Errorf("first run: notes %q", first.Notes)
	}
	if err := account.newKey(asOperator(t), &second); err != nil {
		t.Fatal(err)
	}
	wantNotes(t, second.Notes, "the key of the last run is removed")
	for key, there := range map[string]bool{laptop: true, first.Key: false, second.Key: true} {
		if live, ok := st.FindKey(key); ok != there || ok && live.Revoked() {
			t.Errorf("key found: %v, want %v", ok, there)
		}
	}
	// Also what the user has revoked, or a former version has left.
	revoked := st.Keys(store.DefaultAccount)[1]
	if _, err := st.RevokeKey(asOperator(t), store.DefaultAccount, revoked.ID); err != nil {
		t.Fatal(err)
	}
	var third Ready
	if err := account.newKey(asOperator(t), &third); err != nil {
		t.Fatal(err)
	}
	if keys := st.Keys(store.DefaultAccount); len(third.Notes) != 0 || len(keys) != 2 || keys[0].Name != "laptop" || keys[1].ID == revoked.ID {
		t.Errorf("third run: notes %q, keys %+v", third.Notes, keys)
	}
}

func wantNotes(t *testing.T, notes []string, parts ...string) {
	t.Helper()
	if len(notes) != len(parts) {
		t.Fatalf("notes = %q, want %d", notes, len(parts))
	}
	for i, part := range parts {
		if !strings.Contains(notes[i], part) {
			t.Errorf("note %q has no %q", notes[i], part)
		}
	}
}
