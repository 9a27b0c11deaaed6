package caddymodule

import (
	"net"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/caddymodule/options"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/connector/link"
)

// `connector pair` requests discoveryPath. readyPath serves the health check on sites that have
// a /readyz of their own.
const (
	discoveryPath = "/.well-known/postern"
	readyPath     = discoveryPath + "/ready"
)

// Tunnel returns the address that connectors dial, and the pin of the gateway's
// identity, to connectors that are being paired. Neither is secret; the pin is
// trusted because it is sent over HTTPS. It also accepts tunnels over WebSockets
// from connectors that cannot use UDP, and answers health checks at readyPath.
type Tunnel struct {
	options.None
	app    *App
	access accessLog
}

// CaddyModule returns the module's registration.
func (Tunnel) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.model_tunnel", New: func() caddy.Module { return new(Tunnel) }}
}

// Provision finds the app.
func (t *Tunnel) Provision(ctx caddy.Context) (err error) {
	t.access = newAccessLog(ctx)
	t.app, err = appOf(ctx)
	return err
}

// discovery is the answer to `connector pair`. It is public, so it has only what pairing needs:
// the gateway's version is in the welcome.
type discovery struct {
	Server  string `json:"server"` // host:port
	Pin     string `json:"pin"`
	URL     string `json:"url,omitempty"`     // of the HTTP API, without /v1
	Console string `json:"console,omitempty"` // where the pairing is approved
}

// ServeHTTP implements caddyhttp.MiddlewareHandler. A WebSocket gets the client's address
// from trusted proxies.
func (t *Tunnel) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	w, end := t.access.begin(w, r, serve.NewExchange())
	defer end()
	return recovered(t.app.logger, w, func(w http.ResponseWriter) error { return t.serve(w, r) }, failJSON)
}

func (t *Tunnel) serve(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Path == readyPath {
		t.app.answerReady(w, r)
		return nil
	}
	hub, err := t.app.listener.Hub()
	switch webSocket := r.URL.Path == link.WebSocketPath; {
	case !webSocket && r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		answerJSON(w, http.StatusMethodNotAllowed,
			map[string]string{"error": "use GET to request the address that connectors dial"})
	case err != nil || hub.Pin() == "":
		w.Header().Set("Retry-After", "1")
		answerJSON(w, http.StatusServiceUnavailable,
			map[string]string{"error": "the gateway is starting; try again in a moment"})
	case webSocket:
		if _, port, err := net.SplitHostPort(r.RemoteAddr); err == nil {
			r.RemoteAddr = net.JoinHostPort(clientIP(r), port)
		}
		hub.ServeWebSocket(w, r)
	default:
		endpoint := t.app.addresses.endpoint()
		if endpoint.Public == "" {
			_, err := endpoint.Token("", "")
			answerJSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
			return nil
		}
		answerJSON(w, http.StatusOK, discovery{endpoint.Public, endpoint.Pin, endpoint.URL, endpoint.Console})
	}
	return nil
}
