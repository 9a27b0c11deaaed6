package caddymodule

import (
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
)

func init() {
	caddy.RegisterModule(Dialect{})
}

// Dialect speaks the caller's dialect: it picks the operation by method and
// path, reads the body to its end, has the next handler fetch the upstream's
// answer, and renders that answer, streamed or whole, and every error, as the
// dialect demands. The list of models, counts of tokens and what is asked of
// kept responses end here.
//
// Placeholder | Value
// ------------|------
// `{http.model_gateway.dialect}` | chat, responses or messages
// `{http.model_gateway.model}` | the model that the client asked for, if that can be a name
type Dialect struct {
	// The largest request body, as it arrives and decoded, and together with
	// what it refers to of kept responses, in bytes.
	// Default: 33554432 (32 MiB).
	MaxBody int64 `json:"max_body,omitempty"`

	// How long a stream stays silent before a ping is sent, before the first
	// byte of the upstream's answer as well as between two events.
	// Default: 10s. Negative: no pings.
	KeepAlive caddy.Duration `json:"keep_alive,omitempty"`

	// Whether responses are kept in memory for previous_response_id,
	// item_reference and GET /v1/responses/{id}: "on", each for the key that
	// made it; "account", for all keys of its account; "off", none. They are
	// kept for 30 minutes and 64 MiB in all. When there is no room left, the
	// oldest is dropped of the key that holds most in the account that holds
	// most. A key reads only what models within its scope have made.
	// Default: "on".
	ResponseStore string `json:"response_store,omitempty"`

	app *App
}

// CaddyModule returns the module's registration.
func (Dialect) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.model_dialect",
		New: func() caddy.Module { return new(Dialect) },
	}
}

// Provision finds the app and sets defaults.
func (d *Dialect) Provision(ctx caddy.Context) error {
	if d.MaxBody == 0 {
		d.MaxBody = 32 << 20
	}
	if d.KeepAlive == 0 {
		d.KeepAlive = caddy.Duration(10 * time.Second)
	}
	switch d.ResponseStore {
	case "":
		d.ResponseStore = storeOn
	case storeOn, storeOff, storeAccount:
	default:
		return fmt.Errorf("response_store: %q is not one of on, off, account", d.ResponseStore)
	}
	return provisionApp(ctx, &d.app)
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (d *Dialect) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	ex, err := exchangeOf(r)
	if err != nil {
		return err
	}
	a := newAnswer(w)
	operation, derr := dialect.Lookup(r.Method, r.URL.EscapedPath(), r.Header)
	ex.Operation = operation
	defer func() {
		ex.place.Leave()
		ex.held.reservation.Release()
		status, first := a.end()
		ex.observe(status)
		d.app.record(ex, a.outcome(operation.Dialect), first)
	}()
	switch {
	case derr != nil:
	case operation.Kind == dialect.ListModels:
		derr = d.listModels(a, ex, r)
	case operation.Kind == dialect.GetModel:
		derr = d.getModel(a, ex)
	case operation.ResponseID != "":
		derr = d.keptResponse(a, ex, r.URL.Query())
	default:
		c := completion{Dialect: d, exchange: ex, answer: a, ctx: r.Context()}
		if operation.UpstreamPath() == "" {
			derr = c.count(r)
		} else {
			derr = c.serve(w, r, next)
		}
	}
	if derr != nil {
		a.fail(operation.Dialect, ex.RequestID, derr)
	}
	if a.cut(r.ProtoMajor) { // a return would end the answer as if it were whole
		panic(http.ErrAbortHandler)
	}
	return nil
}

// listModels answers with the deployments that the key's scope allows.
func (d *Dialect) listModels(a *answer, ex *exchange, r *http.Request) *dialect.Error {
	st, err := d.app.openStore()
	if err != nil {
		return d.app.internal("opening its store", err)
	}
	var models []dialect.Model
	for _, deployment := range st.Deployments(ex.Account) {
		if ex.Key.Scope().Allows(deployment.Name) {
			models = append(models, modelOf(deployment))
		}
	}
	body, derr := dialect.ModelsList(models, r.URL.Query(), r.Header.Get("Anthropic-Version") != "")
	if derr != nil {
		return derr
	}
	_ = a.whole(http.StatusOK, body) // a failed write means that the client is gone
	return nil
}

// getModel answers with one deployment. One that the key may not use is not
// there, as in the list.
func (d *Dialect) getModel(a *answer, ex *exchange) *dialect.Error {
	st, err := d.app.openStore()
	if err != nil {
		return d.app.internal("opening its store", err)
	}
	name := ex.Operation.ModelID
	deployment, ok := st.Deployment(ex.Account, name)
	if !ok || !ex.Key.Scope().Allows(name) {
		return dialect.UnknownModel(name)
	}
	_ = a.whole(http.StatusOK, dialect.ModelObject(modelOf(deployment)))
	return nil
}

// modelOf is a deployment as the list of models shows it.
func modelOf(d store.Deployment) dialect.Model {
	return dialect.Model{ID: d.Name, Owner: d.Account, Created: d.CreatedAt}
}

// parseOption reads one option of the directive.
func (d *Dialect) parseOption(t *caddyfile.Dispenser) error {
	switch t.Val() {
	case "max_body":
		return parseSize(t, &d.MaxBody)
	case "keep_alive":
		return parseDuration(t, &d.KeepAlive)
	case "response_store":
		return parseWord(t, &d.ResponseStore, storeOn, storeOff, storeAccount)
	default:
		return t.Errf("unrecognized option %q; expected max_body, keep_alive or response_store", t.Val())
	}
}

// UnmarshalCaddyfile reads
//
//	model_dialect {
//		max_body   <size>
//		keep_alive <duration>
//		response_store on|off|account
//	}
func (d *Dialect) UnmarshalCaddyfile(t *caddyfile.Dispenser) error {
	return parseBlock(t, d.parseOption)
}

// Interface guards.
var (
	_ caddy.Provisioner           = (*Dialect)(nil)
	_ caddyhttp.MiddlewareHandler = (*Dialect)(nil)
	_ caddyfile.Unmarshaler       = (*Dialect)(nil)
)
