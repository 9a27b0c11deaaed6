package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func writeConfig(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "connector.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

// Files of processes that were killed are removed, but not files that another process may be
// writing.
func TestReplaceRemovesLeftovers(t *testing.T) {
	path := writeConfig(t, "old", 0o600)
	stale, fresh := filepath.Join(filepath.Dir(path), ".connector-new-1.json"), filepath.Join(filepath.Dir(path),
		".connector-new-2.json")
	for _, name := range []string{stale, fresh} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now().Add(-2 * abandonedAfter)
	if err := os.Chtimes(stale, before, before); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("the leftover is still there: %v", err)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("what may be in use is gone: %v", err)
	}
}
