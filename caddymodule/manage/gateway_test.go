package manage_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/observed"
	"github.com/postern-dev/postern/caddymodule/pairing"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/caddymodule/turns"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/asktest"
)

const prefix = "/model_gateway"

// pin is a well-formed pin.
var pin = base64.RawURLEncoding.EncodeToString(make([]byte, sha256.Size))

// gateway is a management API over a real store and fake tunnels.
type gateway struct {
	t        *testing.T
	store    *store.Store
	tunnels  *fakeTunnels
	activity *activity.Log
	observed *observed.Table
	endpoint manage.Endpoint
	ask      asktest.Gateway
	log      *buffer
	service  *manage.Service
	desk     *pairing.Service
	webhooks []manage.Webhook
	handler  http.Handler
}

// buffer takes log lines from several goroutines.
type buffer struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.String()
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	return newGatewayIn(t, nil)
}

// newGatewayIn returns a gateway of a cluster, which may be nil.
func newGatewayIn(t *testing.T, cluster manage.Cluster) *gateway {
	t.Helper()
	kv, err := store.OpenBolt(filepath.Join(t.TempDir(), "gateway.db"), store.BoltOptions{})
	must(t, err)
	st, err := store.New(kv, store.Options{})
	must(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return newGatewayOn(t, st, cluster)
}

// newGatewayOn is newGateway on a store that other gateways may share.
func newGatewayOn(t *testing.T, st *store.Store, cluster manage.Cluster) *gateway {
	t.Helper()
	if _, err := st.Secret(t.Context(), store.SecretIdentity, link.NewIdentity); err != nil { // as the listener does
		t.Fatal(err)
	}
	g := &gateway{
		t: t, store: st, tunnels: &fakeTunnels{tunnels: make(map[string]*fakeTunnel)}, log: &buffer{},
		endpoint: manage.Endpoint{
			URL: "https://gw.example.com", Console: "https://gw.example.com/console/", Listen: ":7443",
			Public: "gw.example.com:7443", Pin: pin,
		},
	}
	desk := pairing.New(pairing.Options{
		Store: st, Token: func(string, string) (string, error) { return "ptt_test", nil }, Pin: func() string { return pin },
	})
	t.Cleanup(desk.Close)
	g.desk = desk
	g.activity = activity.New(activity.Options{Store: st})
	t.Cleanup(func() { _ = g.activity.Close() })
	g.ask = asktest.New(t, st, g.activity, g.tunnels.Route)
	g.observed = g.ask.Observed
	signIn, err := signin.New(signin.Options{Store: st})
	must(t, err)
	g.webhooks = []manage.Webhook{{Host: "hooks.example.com", Format: "slack", Test: func(context.Context) error {
		return nil
	}}}
	g.service = manage.New(manage.Options{
		Webhooks: func() []manage.Webhook { return g.webhooks },
		Limits:   noLimits, Load: idle, Server: loaded, Ask: g.ask.Ask,
		Store: st, Tunnels: g.tunnels, Build: manage.Build{Version: "v1.2.3", Commit: "abc123", Caddy: "v2.11.9"},
		Pairing: desk, SignIn: signIn, Activity: g.activity, Observed: g.observed, Cluster: cluster,
		Endpoint: func() manage.Endpoint { return g.endpoint },
		Logger:   slog.New(slog.NewJSONHandler(g.log, nil)),
	})
	g.handler = g.service.Handler(prefix)
	return g
}

// asOperator returns the context of the operator.
func asOperator(ctx context.Context) context.Context {
	return manage.WithCaller(ctx, operator)
}

// do performs a request of the operator; a non-empty body is sent as JSON.
func (g *gateway) do(method, path, body string) *httptest.ResponseRecorder {
	g.t.Helper()
	return g.doAs(operator, method, path, body)
}

func (g *gateway) doAs(caller manage.Caller, method, path, body string) *httptest.ResponseRecorder {
	g.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, prefix+path, reader)
	if caller != (manage.Caller{}) {
		r = r.WithContext(manage.WithCaller(r.Context(), caller))
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	w := httptest.NewRecorder()
	g.handler.ServeHTTP(w, r)
	return w
}

// password is the password of all users, and passwordHash its stored hash.
const (
	password     = "correct horse battery"
	passwordHash = "$argon2id$v=19$m=19456,t=2,p=1$2IyRCrXXS7KidbJylBUmCQ$ZokozI2ZdEbzD2iCYSMCfGtpO5rC73GnD7R2tEI/8qA"
)

// user creates a user who has just signed in.
func (g *gateway) user(account, name string) manage.Caller {
	g.t.Helper()
	u, err := g.store.CreateUser(g.t.Context(), account, name, passwordHash, store.RoleAdmin)
	must(g.t, err)
	session, _, err := g.store.CreateSession(g.t.Context(), u.ID, "password", "192.0.2.1", "test")
	must(g.t, err)
	return manage.Caller{Account: account, User: u.ID, Name: name, Session: session.ID, ConfirmedAt: session.ConfirmedAt}
}

// asToken returns the context of a management token of a user.
func asToken(user manage.Caller, rights store.Rights) manage.Caller {
	return manage.Caller{
		Account: user.Account, User: user.User, Name: user.Name, Token: "mgt_ci", TokenName: "ci",
		Rights: rights,
	}
}

// connector creates an online connector with these upstreams.
func (g *gateway) connector(account, name string, upstreams map[string]http.Handler) *fakeTunnel {
	g.t.Helper()
	con, _, err := g.store.CreateConnector(g.t.Context(), account, name)
	must(g.t, err)
	opened := g.tunnels.open(g.t, con, upstreams)
	g.ask.Connect(account, con.ID, opened, false, opened.info.Upstreams...)
	return opened
}

// disconnect takes the connector of a tunnel offline.
func (g *gateway) disconnect(f *fakeTunnel) {
	g.tunnels.mu.Lock()
	delete(g.tunnels.tunnels, f.info.Connector)
	g.tunnels.mu.Unlock()
	g.ask.Disconnect(f.info.Account, f.info.Connector)
}

// deployment registers name on the connector of a tunnel.
func (g *gateway) deployment(name string, to *fakeTunnel, upstream, model string) {
	g.t.Helper()
	_, err := g.store.SetDeployment(g.t.Context(), store.Deployment{
		Account: to.info.Account, Name: name, Connectors: []string{to.info.Connector}, Upstream: upstream, Model: model,
	})
	must(g.t, err)
}

// device uses the code of a pairing as a device that waits for approval.
func (g *gateway) device(code, hostname string) {
	g.t.Helper()
	_, err := g.store.ClaimPairing(g.t.Context(), code, strings.Repeat("s", 43), store.Device{
		Hostname: hostname, OS: "linux", Version: "v1.0.0", Address: "192.0.2.9", Fingerprint: "3f9a 07c2 b1d4",
		Upstreams: []string{"ollama"},
		At:        time.Now(),
	})
	must(g.t, err)
}

var _ manage.Tunnels = (*fakeTunnels)(nil)

// fakeTunnels is a hub whose tunnels the test opens.
type fakeTunnels struct {
	mu      sync.Mutex
	infos   []tunnel.Info
	tunnels map[string]*fakeTunnel
	recheck func() // is called for missing models
}

func (f *fakeTunnels) Sessions() []tunnel.Info {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.infos
}

func (f *fakeTunnels) Counters() tunnel.Counters { return tunnel.Counters{Connected: 7} }

func (f *fakeTunnels) Tunnel(id string) (manage.Tunnel, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, ok := f.tunnels[id]
	return t, ok
}

// Route returns the route of a deployment through a connector.
func (f *fakeTunnels) Route(id string, to tunnel.Target) (r tunnel.DeploymentRoute, ok bool) {
	for _, info := range f.Sessions() {
		if info.Connector == id {
			return info.DeploymentRoute(to), true
		}
	}
	return r, false
}

// Recheck reports whether a model is missing. A test may list it then.
func (f *fakeTunnels) Recheck(id string, to tunnel.Target) (missing bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, info := range f.infos {
		missing = missing || info.Connector == id && info.DeploymentRoute(to).State == health.ModelMissing
	}
	if missing && f.recheck != nil {
		f.recheck()
	}
	return missing
}

// connect sets the listed tunnels, without tunnels for requests.
func (f *fakeTunnels) connect(infos ...tunnel.Info) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.infos = infos
}

func (f *fakeTunnels) open(t *testing.T, con store.Connector, upstreams map[string]http.Handler) *fakeTunnel {
	f.mu.Lock()
	defer f.mu.Unlock()
	opened := newFakeTunnel(t, con, upstreams)
	f.infos = append(f.infos, opened.info)
	f.tunnels[con.ID] = opened
	return opened
}

// noLimits returns the limits of any key.
func noLimits(context.Context, string, []limits.Subject) (limits.Usage, error) {
	return limits.Usage{}, nil
}

// idle tells that no requests run or wait.
func idle(string, string) (running, queued int) { return 0, 0 }

// loaded is the state of each server that loads one model at a time.
func loaded(account, connector, upstream string) turns.ServerState {
	return turns.ServerState{
		Connector: connector, Server: upstream, Loaded: account + "'s model", Swaps: 3, Swapping: 4500 * time.Millisecond,
	}
}
