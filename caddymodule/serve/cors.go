package serve

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// preflightSeconds is how long a browser may remember the answer to a preflight, the longest time
// that Chrome accepts.
const preflightSeconds = "7200"

// CORS lists the origins whose web pages may call the API: cross-origin resource sharing, Fetch
// Standard §3.2. The zero value allows none.
type CORS struct {
	any     bool
	origins map[string]struct{}
}

// NewCORS reads origins such as `https://chat.example.com`. `*` is any origin.
func NewCORS(origins []string) (CORS, error) {
	c := CORS{origins: make(map[string]struct{}, len(origins))}
	for _, origin := range origins {
		if origin == "*" {
			c.any = true
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != origin ||
			origin != strings.ToLower(origin) {
			return CORS{}, fmt.Errorf("cors: %q is not an origin: use *, or an origin in lower case and without a path, such "+
				"as https://chat.example.com", origin)
		}
		c.origins[origin] = struct{}{}
	}
	return c, nil
}

// Serve adds the headers for the page of a request, if its origin may call the API. It reports
// whether the request was a preflight, which it answers.
func (c CORS) Serve(w http.ResponseWriter, r *http.Request) bool {
	if !c.any && len(c.origins) == 0 {
		return false
	}
	h, origin, allowed := w.Header(), r.Header.Get("Origin"), "*"
	if !c.any {
		h.Add("Vary", "Origin")
		allowed = origin
		if _, known := c.origins[origin]; !known {
			return false
		}
	}
	if origin == "" {
		return false
	}
	h.Set("Access-Control-Allow-Origin", allowed)
	h.Set("Access-Control-Expose-Headers", "*")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Add("Vary", "Access-Control-Request-Headers")
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked) // `*` does not include Authorization
	}
	h.Set("Access-Control-Max-Age", preflightSeconds)
	w.WriteHeader(http.StatusNoContent)
	return true
}
