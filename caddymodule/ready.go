package caddymodule

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
)

// answerReady answers a health check of a load balancer.
func (a *App) answerReady(w http.ResponseWriter, r *http.Request) {
	if reason := a.unready(r); reason != "" {
		answerText(w, http.StatusServiceUnavailable, reason)
		return
	}
	answerText(w, http.StatusOK, "ready")
}

// unready returns why the gateway should get no new requests, "" if it should. Connectors
// do not count: without any, the gateway still answers, and another one would not help.
func (a *App) unready(r *http.Request) string {
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	delayed, _ := repl.Get("http.shutting_down") // by shutdown_delay
	if caddy.Exiting() || delayed == true {
		return "shutting down"
	}
	open := a.store.Opened()
	if hub, err := a.listener.Hub(); err != nil || hub.Pin() == "" || open == nil {
		return "starting"
	}
	switch {
	case open.Store.Serving() != nil:
		return "lost the store"
	case open.Cluster != nil && open.Cluster.Draining():
		return "draining"
	}
	return ""
}
