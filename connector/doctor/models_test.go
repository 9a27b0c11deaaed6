package doctor

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

func TestModels(t *testing.T) {
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
			failed, err := failedModels(t, c.Anchored(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			if (failed == "") != (test.want == "") || !strings.Contains(failed, test.want) {
				t.Errorf("failed: %q", failed)
			}
			if c.Upstreams["box"].APIKeyFile != "key" {
				t.Error("the configuration was changed")
			}
		})
	}
	c := config.Config{Upstream: "http://127.0.0.1:1"}
	failed, err := failedModels(t, c)
	if err != nil || !strings.Contains(failed, "the model server at 127.0.0.1:1: connecting") ||
		!strings.Contains(failed, "start the model server") {
		t.Errorf("no server: %v, %v", failed, err)
	}
	c.APIKeyFile = "/none"
	if _, err := failedModels(t, c); err == nil {
		t.Error("a missing key file is not an error")
	}
}

// failedModels returns the failed findings of [Models].
func failedModels(t *testing.T, c config.Config) (failed string, err error) {
	err = Models(t.Context(), c, func(f Finding) {
		if f.Result == ResultFailed {
			failed += f.Detail + "; " + f.Fix
		}
	})
	return failed, err
}
