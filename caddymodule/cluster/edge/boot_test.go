//go:build linux

package edge

import (
	"os"
	"testing"
)

// TestBoot has the same file under another name, and a copy of it.
func TestBoot(t *testing.T) {
	dir := t.TempDir()
	write := func(path string) {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(dir + "/edge.db")
	write(dir + "/copy.db")
	first, other := bootFileID(dir+"/edge.db"), bootFileID(dir+"/copy.db")
	if err := os.Rename(dir+"/edge.db", dir+"/moved.db"); err != nil {
		t.Fatal(err)
	}
	again := bootFileID(dir + "/moved.db")
	if first == "" || again != first || other == first || bootFileID(dir+"/edge.db") != "" {
		t.Errorf("the file has %q and then %q, its copy %q, and no file %q", first, again, other, bootFileID(dir+"/edge.db"))
	}
}
