package upstream

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/config"
)

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		body   string
		want   string // part of the warning; "" none
	}{
		{"fine", http.StatusOK, `{"object":"list","data":[{"id":"m"}]}`, ""},
		{"no models yet", http.StatusOK, `{"data":[]}`, ""},
		{"something else", http.StatusOK, `<html>`, "not a list of models"},
		{"other JSON", http.StatusOK, `{"models":[]}`, "not a list of models"},
		{"refuses", http.StatusUnauthorized, `{}`, "status 401"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer k3y" {
					t.Errorf("asked for %s with %q", r.URL.Path, r.Header.Get("Authorization"))
				}
				w.WriteHeader(test.status)
				fmt.Fprint(w, test.body)
			}))
			defer server.Close()
			path := filepath.Join(t.TempDir(), "connector.json")
			if err := os.WriteFile(filepath.Join(filepath.Dir(path), "key"), []byte("k3y\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			c := config.Config{Upstreams: map[string]config.Upstream{"box": {BaseURL: server.URL + "/v1", APIKeyFile: "key"}}}
			warnings, err := Check(t.Context(), c.Anchored(filepath.Dir(path)), quiet)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(warnings, "\n"); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("warnings: %q", got)
			}
			if c.Upstreams["box"].APIKeyFile != "key" {
				t.Error("the configuration was changed")
			}
		})
	}
	c := config.Config{Upstream: "http://127.0.0.1:1"}
	warnings, err := Check(t.Context(), c, quiet)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "the model server at 127.0.0.1:1 cannot be used yet") {
		t.Errorf("nobody there: %v, %v", warnings, err)
	}
	c.APIKeyFile = "/none"
	if _, err := Check(t.Context(), c, quiet); err == nil {
		t.Error("a key file that is not there is no error")
	}
}
