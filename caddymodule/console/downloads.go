package console

import (
	"net/http"

	"github.com/postern-dev/postern/caddymodule/downloads"
)

// noScript is the answer while the gateway does not know its own address.
const noScript = "The gateway does not know its address. Name its host with `public` in the Caddyfile.\n"

// script serves a script that installs a connector or sets up a client. It needs no session: it contains
// nothing secret.
func (c *Console) script(write func(downloads.Site, []downloads.Archive) string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		folder, site := c.Manage.Downloads()
		if site.URL == "" || site.Console == "" {
			http.Error(w, noScript, http.StatusServiceUnavailable)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Cache-Control", "no-store")
		_, _ = w.Write([]byte(write(site, folder.Archives()))) // fails only if the client has gone
	}
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
