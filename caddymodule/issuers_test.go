package caddymodule

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/issuertest"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// consoleFile returns a configuration with these options of the console.
func consoleFile(t *testing.T, database, options string) string {
	t.Helper()
	return fmt.Sprintf("{\n model_gateway {\n  listen %s\n  storage bolt %s\n }\n}\n"+
		"http://localhost:8080 {\n model_gateway\n model_console {\n%s\n}\n}", freeUDP(t), database, options)
}

// issuerOf returns an issuer with these options.
func issuerOf(url, options string) string {
	return "oidc " + url + " {\n client_id x\n" + options + "\n}\n"
}

func TestIssuerOptions(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("s3cret\n"), 0o600))
	database := filepath.Join(t.TempDir(), "gateway.db")
	app := provision(t, consoleFile(t, database, issuerOf("https://id.example.com", `
		client_secret {file.`+secret+`}
		groups_claim roles
		admins a b
		members c
		domains Example.com
		name company`)+issuerOf("https://other.example.com", "members *")+`
		local off
		session_lifetime 1h
		keys_need_sign_in 30d
		redirect_url https://gw.example.com`))
	c := app.issuers[0].Config
	if len(app.issuers) != 2 || c.ClientSecret != "s3cret" || c.Name != "company" ||
		!slices.Equal(c.Admins, []string{"a", "b"}) {
		t.Errorf("%d issuers, %q, %q, %q", len(app.issuers), c.ClientSecret, c.Name, c.Admins)
	}
	want := store.SignInPolicy{
		Issuers: []string{"https://id.example.com", "https://other.example.com"}, LocalOff: true,
		KeysNeed: 30 * 24 * time.Hour, Lifetime: time.Hour,
	}
	if got := app.gateway.SignIn; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v", got)
	}
	if strings.Contains(fmt.Sprintf("%+v", app.signIn.OIDC), "s3cret") {
		t.Error("the configuration has the secret in clear text")
	}
	for options, want := range map[string]string{
		issuerOf("http://id.example.com", ""):                                             "must begin with https://",
		"oidc https://id.example.com":                                                     "client_id is missing",
		issuerOf("https://accounts.google.com", "members *"):                              "let everyone in",
		issuerOf("https://id.example.com", "client_secret {env.NONE}"):                    "client_secret",
		issuerOf("https://id.example.com", "") + issuerOf("https://id.example.com/2", ""): "another issuer has this URL, or",
		"local off":             "local off needs an issuer",
		"keys_need_sign_in 30d": "keys_need_sign_in needs an issuer",
		"session_lifetime 8d":   "session_lifetime",
		"session_lifetime 0s":   "session_lifetime",
	} {
		if _, err := tryProvision(t, consoleFile(t, database, options)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", options, err, want)
		}
	}
	for options, want := range map[string]string{
		"oidc":                 "takes the URL of an issuer",
		"local no":             "is not one of on, off",
		"local off\nlocal off": "given twice",
		"oidc https://id.example.com {\n secret x\n}": "expected client_id",
		"oidc https://id.example.com x":               "argument",
		"keys_need_sign_in soon":                      "is not a duration",
	} {
		_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(consoleFile(t, database, options)), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", options, err, want)
		}
	}
	// Two sites have the same options, or the configuration is refused.
	same := consoleFile(t, database, issuerOf("https://id.example.com", "domains Example.com"))
	_, site, _ := strings.Cut(same, "http://localhost:8080")
	if app := provision(t, same+"\nhttp://localhost:8081"+site); len(app.issuers) != 1 {
		t.Errorf("%d issuers", len(app.issuers))
	}
	if _, err := tryProvision(t, same+"\nhttp://localhost:8081 {\n model_console\n}"); err == nil ||
		!strings.Contains(err.Error(), "different options") {
		t.Errorf("different options: %v", err)
	}
}

// JSON can have what no Caddyfile has.
func TestIssuerOptionsInJSON(t *testing.T) {
	file := consoleFile(t, filepath.Join(t.TempDir(), "gateway.db"), issuerOf("https://id.example.com", ""))
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(file), nil)
	must(t, err)
	i := bytes.Index(adapted, []byte(`"oidc":[{`))
	end := i + bytes.IndexByte(adapted[i:], ']')
	for value, want := range map[string]string{
		`null`: "must begin with https://", `{}`: "must begin with https://", `{"url":"https://id.example.com"}`: "client_id",
		`null],"keys_need_sign_in":-1,"oidc":[null`: "keys_need_sign_in must be",
	} {
		cfg := new(caddy.Config)
		changed := string(adapted[:i]) + `"oidc":[` + value + string(adapted[end:])
		must(t, caddy.StrictUnmarshalJSON([]byte(changed), cfg))
		if _, err := caddy.ProvisionContext(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
}

// sharedLog is a log that several goroutines write.
type sharedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *sharedLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *sharedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// An issuer that is down stops no load, and its discovery outlives reloads. A load is refused if the account or the
// redirect address is missing.
func TestStartIssuers(t *testing.T) {
	database := filepath.Join(t.TempDir(), "gateway.db")
	fake := issuertest.New(t)
	loaded := make(chan struct{})
	fake.Handle("/.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-loaded:
		case <-r.Context().Done():
			t.Error("the load waits for the issuer")
		}
		w.WriteHeader(http.StatusBadGateway)
	})
	load := func(options string) (*App, error) {
		app := provision(t, consoleFile(t, database, options))
		app.store.Messages = io.Discard
		return app, app.Start()
	}
	log := new(sharedLog)
	app := provision(t, consoleFile(t, database, issuerOf(fake.URL, "members *\n name company")+"local off"))
	app.store.Messages, app.logger = io.Discard, slog.New(slog.NewTextHandler(log, nil))
	start(t, app)
	close(loaded)
	for _, want := range []string{
		"redirect_url=http://localhost:8080/console/sign-in/oidc/company/callback", "becomes a member",
		"no admin has signed in",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log.String())
		}
	}
	if !app.store.Opened().Store.SignInPolicy().LocalOff {
		t.Error("the policy is not in force")
	}
	fake.Handle("/.well-known/openid-configuration", nil)
	wait.Until(t, "the issuer is found", app.issuers[0].Known)
	next, err := load(issuerOf(fake.URL, "members *\n name company"))
	must(t, err)
	defer func() { _ = next.Stop() }()
	if next.issuers[0].Provider != app.issuers[0].Provider {
		t.Error("the provider is not kept")
	}
	if _, err := load(issuerOf(fake.URL, "account ghosts")); err == nil ||
		!strings.Contains(err.Error(), `no account "ghosts"`) {
		t.Errorf("a missing account: %v", err)
	}
	file := consoleFile(t, database, issuerOf(fake.URL, ""))
	nameless := provision(t, strings.ReplaceAll(file, "http://localhost:8080", ":8080"))
	if err := nameless.Start(); err == nil || !strings.Contains(err.Error(), "redirect_url https://gw.example.com") {
		t.Errorf("without a host: %v", err)
	}
	for _, wrong := range []string{
		"gw.example.com", "https://gw.example.com/console", "https://u@gw", "ftp://x", "https://gw:443", "http://gw:80",
		"https://*.example.com", "https://:8443",
	} {
		if _, err := load(issuerOf(fake.URL, "") + "redirect_url " + wrong); err == nil {
			t.Errorf("redirect_url %s is accepted", wrong)
		}
	}
}
