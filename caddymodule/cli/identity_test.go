package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const identityJSON = `{"pin":"PIN","connectors":2}`

var identityTests = []struct {
	name    string
	args    string
	answers map[string]adminAnswer
}{
	{"identity_status", "identity status", ok("GET /model_gateway/identity", identityJSON)},
	{"identity_rotate", "identity rotate --yes", ok("POST /model_gateway/identity/rotate", identityJSON)},
	{"identity_rotate_declined", "identity rotate", ok("GET /model_gateway/identity", identityJSON)},
	{"help_identity_rotate", "identity rotate --help", nil},
	{"help_backup", "backup --help", nil},
	{"help_restore", "restore --help", nil},
}

// A truncated or invalid backup leaves no file, and the command fails.
func TestBackupFails(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 100000))
			panic(http.ErrAbortHandler)
		},
		"no backup": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"refused":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"error":"no"}`, http.StatusForbidden) },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			dir := t.TempDir()
			kept := filepath.Join(dir, "kept.db")
			if err := os.WriteFile(kept, []byte("kept"), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{filepath.Join(dir, "backup.db")}, {kept}, {kept, "--force"}, {"-"}} {
				ran := runCommand(t, append([]string{"backup", "--address", strings.TrimPrefix(server.URL, "http://")}, args...)...)
				if ran.exit != 1 || ran.out != "" || !strings.HasPrefix(ran.err, "Error: ") {
					t.Errorf("%q: %+v", args, ran)
				}
			}
			files, err := os.ReadDir(dir)
			if text, _ := os.ReadFile(kept); err != nil || len(files) != 1 || string(text) != "kept" {
				t.Errorf("files %v, %v", files, err)
			}
		})
	}
}
