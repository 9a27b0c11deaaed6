package config

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
)

// methods are the methods that can be allowed.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// Pattern is one entry of allow in the configuration. It is comparable.
type Pattern struct {
	method, path string
	prefix       bool // path is a prefix
}

// parsePattern reads "METHOD /v1/path" or "METHOD /v1/path*".
func parsePattern(text string) (Pattern, error) {
	method, path, _ := strings.Cut(text, " ")
	path, prefix := strings.CutSuffix(path, "*")
	plain := path
	if prefix {
		plain = strings.TrimSuffix(path, "/") + "/x"
	}
	if !slices.Contains(methods, method) || !isPlain(plain) || strings.Contains(path, "*") {
		return Pattern{}, fmt.Errorf(`%q must be a method and a path under /v1, optionally with a trailing *, like "POST /v1/rerank" or "GET /v1/models/*"`, text)
	}
	return Pattern{method, path, prefix}, nil
}

// Matches reports whether the pattern allows a request. Ambiguous paths never match.
func (p Pattern) Matches(method, path string) bool {
	return method == p.method && (path == p.path || p.prefix && strings.HasPrefix(path, p.path)) && isPlain(path)
}

// isPlain reports whether p is a path under /v1 that all servers interpret alike.
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

// Patterns returns the patterns of Allow.
func (c *Config) Patterns() ([]Pattern, error) {
	patterns := make([]Pattern, len(c.Allow))
	for i, text := range c.Allow {
		var err error
		if patterns[i], err = parsePattern(text); err != nil {
			return nil, fmt.Errorf("allow[%d]: %w", i, err)
		}
	}
	return patterns, nil
}
