package up

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/observed"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/caddymodule/turns"
	"github.com/postern-dev/postern/connector/link"
)

// noTunnels is a hub without tunnels.
type noTunnels struct{}

func (noTunnels) Sessions() []tunnel.Info             { return nil }
func (noTunnels) Counters() tunnel.Counters           { return tunnel.Counters{} }
func (noTunnels) Tunnel(string) (manage.Tunnel, bool) { return nil, false }

func (noTunnels) Recheck(string, tunnel.Target) bool { return false }

// asOperator returns the context of the operations of `caddy gateway up`.
func asOperator(t *testing.T) context.Context {
	t.Helper()
	return manage.WithCaller(t.Context(), manage.Caller{Name: "test", Operator: true})
}

// newAccount returns the account of a new up.db, and a pointer to its address.
func newAccount(t *testing.T) (local account, st *store.Store, public *string) {
	t.Helper()
	kv, err := store.OpenBolt(filepath.Join(t.TempDir(), "up.db"), store.BoltOptions{})
	must(t, err)
	st, err = store.New(kv, store.Options{})
	must(t, err)
	t.Cleanup(func() { _ = st.Close() })
	key, err := link.NewIdentity()
	must(t, err)
	_, pin, err := link.Identity(key)
	must(t, err)
	public = new("127.0.0.1:7443")
	service := manage.New(manage.Options{
		Store: st, Tunnels: noTunnels{}, Observed: observed.New(time.Now),
		Load:     func(string, string) (running, queued int) { return 0, 0 },
		Server:   func(_, _, _ string) (none turns.ServerState) { return none },
		Endpoint: func() manage.Endpoint { return manage.Endpoint{Public: *public, Pin: pin} },
	})
	return account{service: service}, st, public
}

// wantToken checks the server of a token, and that it authenticates the connector.
func wantToken(t *testing.T, st *store.Store, id, token, server string) {
	t.Helper()
	parsed, err := link.ParseToken(token)
	must(t, err)
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
	must(t, err)
	wantToken(t, st, id, token, "127.0.0.1:7443")

	*public = "127.0.0.1:40001" // another run got another port
	again, token, err := account.connector(asOperator(t))
	must(t, err)
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
	must(t, err)
	_, code, err := st.CreatePairing(t.Context(), store.DefaultAccount, "test")
	must(t, err)
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
	if c, _ := st.Connector(ids[0]); c.Name != ownName+"-2" || ids[0] != ids[1] ||
		len(st.Connectors(store.DefaultAccount)) != 2 {
		t.Errorf("the connectors are %s %q and %s", ids[0], c.Name, ids[1])
	}
}

func TestUpPublish(t *testing.T) {
	account, st, _ := newAccount(t)
	local, _, err := account.connector(asOperator(t))
	must(t, err)
	other, _, err := st.CreateConnector(asOperator(t), store.DefaultAccount, "other")
	must(t, err)
	for _, d := range []store.Deployment{
		{Name: "gone", Connectors: []string{local}, Model: "gone"},                        // of a former run
		{Name: "old-file.gguf", Connectors: []string{local}, Model: "/x y/old file.gguf"}, // likewise, with a changed name
		{Name: "alias", Connectors: []string{local}, Model: "gone"},                       // of the user
		{Name: "elsewhere", Connectors: []string{other.ID}, Model: "elsewhere"},           // likewise
		{Name: "both", Connectors: []string{local, other.ID}, Model: "both"},
		// likewise, by its kind
		{Name: "embed-chat", Connectors: []string{local}, Model: "embed-chat", Kind: store.ChatModel},
		{Name: "qwen3:8b", Connectors: []string{local}, MaxConcurrency: 4, Options: compat.Options{ThinkTags: true}},
	} {
		d.Account = store.DefaultAccount
		if _, err := st.SetDeployment(asOperator(t), d); err != nil {
			t.Fatal(err)
		}
	}

	var ready Ready
	models := []string{
		"nomic-embed-text", "embed-chat", "elsewhere", "both", "qwen3:8b", "/m/My Model.gguf",
		"/n/My Model.gguf", "日本語", "glm-5.1:cloud", "gpt-oss:120b-Cloud",
	}
	must(t, account.publish(asOperator(t), local, models, &ready))
	if want := []string{
		"My-Model.gguf", "both", "elsewhere", "embed-chat", "nomic-embed-text", "qwen3:8b",
	}; !reflect.DeepEqual(ready.Models, want) {
		t.Errorf("models = %q, want %q", ready.Models, want)
	}
	wantNotes(t, ready.Notes,
		`models that run in a cloud are not published: 2; --cloud publishes them`,
		`model "/m/My Model.gguf" is published as My-Model.gguf`,
		`model "/n/My Model.gguf" is not published`,
		`model "elsewhere" is not published: the deployment of that name uses another connector`,
		`model "日本語" is not published`)

	var names []string
	for _, d := range st.Deployments(store.DefaultAccount) {
		names = append(names, d.Name+">"+d.Model)
	}
	want := []string{
		"nomic-embed-text>nomic-embed-text", "embed-chat>embed-chat", "My-Model.gguf>/m/My Model.gguf",
		"alias>gone", "both>both", "elsewhere>elsewhere", "qwen3:8b>qwen3:8b",
	}
	slices.Sort(names)
	slices.Sort(want)
	if !reflect.DeepEqual(names, want) {
		t.Errorf("deployments = %q\nwant          %q", names, want)
	}
	if d, _ := st.Deployment(store.DefaultAccount, "nomic-embed-text"); d.Kind != store.EmbeddingsModel {
		t.Errorf("an embeddings model has the kind %s", d.Kind)
	}
	if ready.sample.Name != "My-Model.gguf" || ready.sample.Kind != store.ChatModel { // the first for chat
		t.Errorf("the sample is %+v", ready.sample)
	}
	// Settings of the user stay.
	if d, _ := st.Deployment(store.DefaultAccount, "qwen3:8b"); d.MaxConcurrency != 4 || !d.Options.ThinkTags {
		t.Errorf("the bound and the options of a model are lost: %+v", d)
	}
}

// With --cloud, models of clouds are published, but a local one is the sample.
func TestUpPublishCloud(t *testing.T) {
	account, st, _ := newAccount(t)
	account.cloud = true
	local, _, err := account.connector(asOperator(t))
	must(t, err)
	var ready Ready
	models := []string{"a:cloud", "llama3.2:3b"}
	must(t, account.publish(asOperator(t), local, models, &ready))
	if !reflect.DeepEqual(ready.Models, models) || ready.sample.Name != "llama3.2:3b" || ready.Notes != nil {
		t.Errorf("ready = %+v", ready)
	}
	account.cloud = false
	must(t, account.publish(asOperator(t), local, models, new(Ready)))
	if d := st.Deployments(store.DefaultAccount); len(d) != 1 || d[0].Name != "llama3.2:3b" {
		t.Errorf("deployments = %+v", d)
	}
}

func TestUpPublishNothing(t *testing.T) {
	account, _, _ := newAccount(t)
	local, _, err := account.connector(asOperator(t))
	must(t, err)
	err = account.publish(asOperator(t), local, []string{"日本語"}, new(Ready))
	if err == nil || !strings.Contains(err.Error(), "日本語") {
		t.Errorf("error = %v", err)
	}
}

// A run has the key of the last one. If that was revoked or removed, or its file is
// unusable, it gets a new one. Other keys stay.
func TestUpKey(t *testing.T) {
	account, st, _ := newAccount(t)
	file := filepath.Join(t.TempDir(), "up.key")
	account.keyFile = file
	run := func() Ready {
		t.Helper()
		var ready Ready
		must(t, account.setKey(asOperator(t), &ready))
		if live, ok := st.FindKey(ready.Key); !ok || live.Key().RevokedAt != nil {
			t.Error("the key is not valid")
		}
		return ready
	}
	first := run()
	wantNotes(t, first.Notes)
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	second := run()
	wantNotes(t, second.Notes)
	if second.Key != first.Key || len(st.Keys(store.DefaultAccount)) != 1 {
		t.Error("the second run has another key")
	}
	id := st.Keys(store.DefaultAccount)[0].ID
	if _, err := st.RevokeKey(asOperator(t), store.DefaultAccount, id); err != nil {
		t.Fatal(err)
	}
	third := run()
	wantNotes(t, third.Notes, "the key above is new")
	if live, ok := st.FindKey(first.Key); !ok || live.Key().RevokedAt == nil || third.Key == first.Key {
		t.Error("the revoked key is valid again")
	}
	must(t, os.WriteFile(file, []byte("damaged"), 0o600))
	fourth := run()
	wantNotes(t, fourth.Notes)
	if live, ok := st.FindKey(third.Key); !ok || live.Key().RevokedAt != nil || fourth.Key == third.Key {
		t.Error("a key whose file is damaged is lost")
	}
}

// A key that cannot be saved works nevertheless, and the run reports it.
func TestUpKeyIsNotSaved(t *testing.T) {
	account, _, _ := newAccount(t)
	account.keyFile = filepath.Join(t.TempDir(), "none", "up.key")
	var ready Ready
	err := account.setKey(asOperator(t), &ready)
	if err != nil || ready.Key == "" {
		t.Fatalf("key %q, %v", ready.Key, err)
	}
	wantNotes(t, ready.Notes, "cannot be saved")
	if strings.Contains(ready.Notes[0], ready.Key) {
		t.Error("the note contains the key")
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
