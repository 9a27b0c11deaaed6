package agent

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
)

// methods are those that may be allowed.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// pattern is one entry of allow in the configuration.
type pattern struct {
	method, path string
	prefix       bool // path is the beginning of what is allowed
}

// parsePattern reads "METHOD /v1/path" or "METHOD /v1/path*".
func parsePattern(text string) (pattern, error) {
	method, path, _ := strings.Cut(text, " ")
	path, prefix := strings.CutSuffix(path, "*")
	plain := path
	if prefix {
		plain = strings.TrimSuffix(path, "/") + "/x"
	}
	if !slices.Contains(methods, method) || !isPlain(plain) || strings.Contains(path, "*") {
		return pattern{}, fmt.Errorf(`%q must be a method and a path under /v1, with or without a * at its end, like "POST /v1/rerank" or "GET /v1/models/*"`, text)
	}
	return pattern{method, path, prefix}, nil
}

func (p pattern) matches(method, path string) bool {
	return method == p.method && (path == p.path || p.prefix && strings.HasPrefix(path, p.path))
}

// allows reports whether a request may reach the upstream: what the gateway needs,
// and what the configuration adds to that, as plain paths under /v1. Nothing else
// of the model server can be touched, however the path is spelled.
func (u *upstream) allows(r *http.Request) bool {
	at := r.URL
	if at.Scheme != "" || at.Host != "" || at.Opaque != "" || at.RawPath != "" {
		return false
	}
	switch at.Path {
	case "/v1/chat/completions", "/v1/completions", "/v1/embeddings":
		if r.Method == http.MethodPost {
			return true
		}
	case "/v1/models":
		if r.Method == http.MethodGet {
			return true
		}
	}
	for _, p := range u.allow {
		if p.matches(r.Method, at.Path) && isPlain(at.Path) {
			return true
		}
	}
	return false
}

// isPlain reports whether p is a path under /v1 that all servers read in the same
// way.
func isPlain(p string) bool {
	if !strings.HasPrefix(p, "/v1/") || path.Clean(p) != p {
		return false
	}
	for _, b := range []byte(p) {
		if b <= ' ' || b >= 0x7f || strings.IndexByte(`\%?#;"<>^{|}`+"`", b) >= 0 {
			return false
		}
	}
	return true
}

// allowed returns the patterns of a valid configuration.
func (c *Config) allowed() ([]pattern, error) {
	patterns := make([]pattern, len(c.Allow))
	for i, text := range c.Allow {
		var err error
		if patterns[i], err = parsePattern(text); err != nil {
			return nil, fmt.Errorf("allow[%d]: %w", i, err)
		}
	}
	return patterns, nil
}
