package console

import (
	"cmp"
	"encoding/json"
	"net/http"

	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/connector/clients"
)

// noScript is the answer while the gateway does not know its own address.
const noScript = "The gateway does not know its address. Name its host with `public` in the Caddyfile.\n"

// root returns the root certificate of the gateway's own authority.
func root(site downloads.Site, _ []downloads.Archive) string { return site.Root }

// script serves a script that installs a connector or sets up a client, or what it needs. It needs no session: it
// contains nothing secret.
func (c *Console) script(write func(downloads.Site, []downloads.Archive) string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		folder, site := c.Manage.Downloads()
		if site.URL == "" || site.Console == "" {
			http.Error(w, noScript, http.StatusServiceUnavailable)
			return
		}
		text := write(site, folder.Archives())
		if text == "" {
			http.Error(w, "The certificate of this gateway is not from Caddy's own authority.", http.StatusNotFound)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		_, _ = w.Write([]byte(text)) // fails only if the client has gone
	}
}

// tradeSetup trades a set-up code for a key. It needs no session, but a code.
func (c *Console) tradeSetup(w http.ResponseWriter, r *http.Request) {
	const maxTrade = 4 << 10 // bytes of a body
	var t clients.Trade
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxTrade)).Decode(&t); err != nil {
		manage.WriteError(w, http.StatusBadRequest,
			"the body must be a JSON object of at most 4 KiB with code, client and machine", nil)
		return
	}
	traded, err := c.Manage.UseSetup(r.Context(), c.ClientIP(r), t)
	if err != nil {
		status, text := (&visit{Console: c, w: w, r: r}).explain(err)
		manage.WriteError(w, status, text, err)
		return
	}
	traded.Base = cmp.Or(traded.Base, origin(r))
	manage.WriteJSON(w, http.StatusOK, traded)
}

// archive serves an archive of the connector, without a session.
func (c *Console) archive(w http.ResponseWriter, r *http.Request) {
	folder, _ := c.Manage.Downloads()
	file, err := folder.Open(r.PathValue("name"))
	if err != nil {
		http.Error(w, "Archive not found. Load the script again.", http.StatusNotFound)
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		http.Error(w, "The archive cannot be read.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", info.ModTime(), file)
}
