package caddymodule

import (
	"encoding/json"
	"net"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/postern-dev/postern/connector/link"
)

func init() {
	caddy.RegisterModule(Tunnel{})
}

// discoveryPath is where `connector pair` asks.
const discoveryPath = "/.well-known/postern"

// Tunnel answers connectors that are to be paired with the address that they dial,
// and the pin of the identity that they find there. Nothing of it is secret; the
// pin is trusted since it comes over HTTPS. It also takes the tunnels of
// connectors that cannot use UDP, over WebSockets.
type Tunnel struct {
	noOptions
	app *App
}

// CaddyModule returns the module's registration.
func (Tunnel) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.model_tunnel",
		New: func() caddy.Module { return new(Tunnel) },
	}
}

// Provision finds the app.
func (t *Tunnel) Provision(ctx caddy.Context) error { return provisionApp(ctx, &t.app) }

// discovery is the answer. It is public: there is nothing in it that pairing does
// not need. The gateway's version comes with the welcome.
type discovery struct {
	Server  string `json:"server"` // host:port
	Pin     string `json:"pin"`
	URL     string `json:"url,omitempty"`     // of the HTTP API, without /v1
	Console string `json:"console,omitempty"` // where the pairing is approved
}

// ServeHTTP implements caddyhttp.MiddlewareHandler.
func (t *Tunnel) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	if r.URL.Path == link.WebSocketPath {
		t.serveWebSocket(w, r)
		return nil
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		answerJSON(w, http.StatusMethodNotAllowed, map[string]string{"error": "use GET to ask where connectors dial"})
		return nil
	}
	at := t.app.endpoint()
	switch {
	case at.Pin == "":
		w.Header().Set("Retry-After", "1")
		answerJSON(w, http.StatusServiceUnavailable, map[string]string{"error": "the gateway is just starting; ask again in a moment"})
	case at.Public == "":
		_, err := at.Token("", "")
		answerJSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
	default:
		answerJSON(w, http.StatusOK, discovery{at.Public, at.Pin, at.URL, at.Console})
	}
	return nil
}

// serveWebSocket hands a WebSocket to the hub, under the address that trusted
// proxies report.
func (t *Tunnel) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	hub, err := t.app.listener.val.Hub()
	if err != nil {
		w.Header().Set("Retry-After", "1")
		answerJSON(w, http.StatusServiceUnavailable, map[string]string{"error": "the gateway is just starting; try again in a moment"})
		return
	}
	if _, port, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		r.RemoteAddr = net.JoinHostPort(clientIP(r), port)
	}
	hub.ServeWebSocket(w, r)
}

// answerJSON sends a small answer that no cache keeps.
func answerJSON(w http.ResponseWriter, status int, answer any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // a failed write means that the client is gone
}
