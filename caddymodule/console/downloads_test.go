package console

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/manage"
)

const archive = "connector_0.9.0_linux_amd64.tar.gz"

// connectors returns a folder of connectors, whose content is their name.
func connectors(t testing.TB) *downloads.Folder {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{archive, "connector_0.9.0_windows_amd64.zip", "notes.txt"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	return downloads.NewFolder(dir)
}

// Machines that are not paired yet have no session.
func TestDownloads(t *testing.T) {
	g := newHouse(t).browser()
	for path, want := range map[string]string{
		"/console/install.sh":            "self=install.sh\ngateway='https://gw.example.com'\n",
		"/console/use.sh":                "self=use.sh\ngateway='https://gw.example.com'\n",
		"/console/use.ps1":               "$self = 'use.ps1'\n",
		"/console/install.ps1":           "$console = 'https://gw.example.com/console'\n",
		"/console/connectors/" + archive: archive,
	} {
		w := g.get(path)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("GET %s: status %d, %.200s", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{
		"/console/connectors/notes.txt", "/console/connectors/..%2f" + archive,
		"/console/connectors/connector_0.9.0_linux_arm64.tar.gz",
	} {
		g.refused(g.get(path), http.StatusNotFound, "")
	}
	g.refused(g.get("/console/root.crt"), http.StatusNotFound, "")
	g.endpoint.Root, g.endpoint.Verified = "ROOT", false
	if w := g.get("/console/root.crt"); w.Code != http.StatusOK || w.Body.String() != "ROOT" {
		t.Errorf("the root certificate: status %d, %s", w.Code, w.Body)
	}
	g.endpoint = manage.Endpoint{}
	if w := g.get("/console/install.sh"); w.Code != http.StatusServiceUnavailable ||
		strings.Contains(w.Body.String(), "#!") {
		t.Errorf("without an address: status %d, %s", w.Code, w.Body)
	}
}
