package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
)

//go:embed static
var staticFiles embed.FS

//go:embed templates
var templateFiles embed.FS

// assets are the files that pages load. Each one's URL holds a hash of what is
// in it, so that browsers may keep it forever.
type assets struct {
	byName map[string]asset
}

type asset struct {
	version, kind string
	content       []byte
}

func loadAssets() (*assets, error) {
	entries, err := staticFiles.ReadDir("static")
	if err != nil {
		return nil, err
	}
	a := &assets{byName: make(map[string]asset, len(entries))}
	for _, e := range entries {
		kind := kindOf(e.Name())
		if kind == "" {
			continue // licences and checksums
		}
		content, err := staticFiles.ReadFile("static/" + e.Name())
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(content)
		a.byName[e.Name()] = asset{version: hex.EncodeToString(sum[:6]), kind: kind, content: content}
	}
	return a, nil
}

// kindOf is the media type of a file that pages may load, "" for others. The
// system's own table of types is not asked: it may know .js as something else.
func kindOf(name string) string {
	switch path.Ext(name) {
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return ""
}

// url is where an asset is.
func (a *assets) url(name string) (string, error) {
	file, ok := a.byName[name]
	if !ok {
		return "", fmt.Errorf("asset %q not found", name)
	}
	return "/console/static/" + file.version + "/" + name, nil
}

// ServeHTTP answers with an asset. One of another version is not there: what is
// kept forever under a URL must not change.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	file, ok := a.byName[r.PathValue("name")]
	if !ok || file.version != r.PathValue("version") {
		http.Error(w, "File not found. Load the page again.", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Content-Type", file.kind)
	_, _ = w.Write(file.content) // fails only if the client has gone
}
