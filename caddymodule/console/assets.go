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

// assets are the files that pages load, by name. Each URL contains a hash of the
// content, so that browsers may cache it forever.
type assets map[string]asset

type asset struct {
	version, kind string
	content       []byte
}

// kinds are the media types of the files that pages may load. The system's table is
// not used: it may map .js to another type.
var kinds = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// loadAssets reads the embedded files. It panics only if this program was built wrongly.
func loadAssets() assets {
	files := make(assets)
	entries, _ := staticFiles.ReadDir("static")
	for _, e := range entries {
		kind := kinds[path.Ext(e.Name())]
		content, err := staticFiles.ReadFile("static/" + e.Name())
		switch {
		case kind == "": // licenses and checksums
		case err != nil:
			panic(err)
		default:
			sum := sha256.Sum256(content)
			files[e.Name()] = asset{hex.EncodeToString(sum[:6]), kind, content}
		}
	}
	return files
}

// url returns the URL of an asset.
func (a assets) url(name string) (string, error) {
	file, ok := a[name]
	if !ok {
		return "", fmt.Errorf("asset %q not found", name)
	}
	return "/console/static/" + file.version + "/" + name, nil
}

// ServeHTTP serves an asset. Another version is not found: content that is cached
// forever must not change.
func (a assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	file, ok := a[r.PathValue("name")]
	if !ok || file.version != r.PathValue("version") {
		http.Error(w, "File not found. Load the page again.", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Content-Type", file.kind)
	_, _ = w.Write(file.content) // fails only if the client has gone
}
