package downloads

import (
	"os"
	"path/filepath"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write writes a file, and returns its path.
func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestArchives(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{
		"connector_0.9.0_linux_amd64.tar.gz", "connector_0.10.0_linux_amd64.tar.gz", "connector_0.9.1_linux_amd64.tar.gz",
		"connector_0.9.0_linux_armv7.tar.gz", "connector_0.9.0_windows_amd64.zip",
		// None of these is an archive of the connector.
		"connector_0.9.0_windows_amd64.tar.gz", "connector_0.9.0_linux_arm64.zip", "connector_0.9.0_plan9_amd64.tar.gz",
		"postern_0.9.0_linux_amd64.tar.gz", "connector_x_linux_amd64.tar.gz", "checksums.txt",
	} {
		write(t, dir, name, name)
	}
	must(t, os.Mkdir(filepath.Join(dir, "connector_9.0.0_linux_amd64.tar.gz"), 0o700))
	f := NewFolder(dir)
	check := func(want ...string) {
		t.Helper()
		archives := f.Archives()
		if len(archives) != len(want) {
			t.Fatalf("archives %+v, want %q", archives, want)
		}
		for i, a := range archives {
			content, err := os.ReadFile(filepath.Join(dir, a.Name))
			if err != nil || a.Name != want[i] || a.SHA256 != hash(string(content)) || a.Size != int64(len(content)) {
				t.Errorf("archive %d is %+v, want %s; %v", i, a, want[i], err)
			}
		}
	}
	check("connector_0.9.0_linux_armv7.tar.gz", "connector_0.9.0_windows_amd64.zip")
	must(t, os.Remove(filepath.Join(dir, "connector_9.0.0_linux_amd64.tar.gz")))
	check("connector_0.10.0_linux_amd64.tar.gz", "connector_0.9.0_linux_armv7.tar.gz", "connector_0.9.0_windows_amd64.zip")
	write(t, dir, "connector_0.9.0_linux_armv7.tar.gz", "replaced") // another size, and so another hash
	check("connector_0.10.0_linux_amd64.tar.gz", "connector_0.9.0_linux_armv7.tar.gz", "connector_0.9.0_windows_amd64.zip")

	for name, listed := range map[string]bool{
		"connector_0.10.0_linux_amd64.tar.gz": true, "connector_0.9.1_linux_amd64.tar.gz": false, "checksums.txt": false,
		"../" + filepath.Base(dir) + "/connector_0.10.0_linux_amd64.tar.gz": false, "": false,
	} {
		file, err := f.Open(name)
		if (err == nil) != listed {
			t.Errorf("Open(%q): %v", name, err)
		}
		_ = file.Close() // of nil, too
	}
	if a := NewFolder(filepath.Join(dir, "none")).Archives(); len(a) != 0 {
		t.Errorf("a folder that does not exist has %+v", a)
	}
}

// Of calls that wait for each other, all but the first share one read, which has begun after the calls.
func TestConcurrentReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "connector_0.9.0_linux_amd64.tar.gz", "old")
	f := NewFolder(dir)
	calls := f.begun.Load() // many calls begin now
	f.readAfter(calls)      // the first one reads
	write(t, dir, "connector_0.10.0_linux_amd64.tar.gz", "new")
	for range 100 {
		if a := f.readAfter(calls); len(a) != 1 || a[0].Version != "0.9.0" || f.begun.Load() != calls+1 {
			t.Fatalf("after %d reads: %+v", f.begun.Load(), a)
		}
	}
	if a := f.Archives(); a[0].Version != "0.10.0" {
		t.Errorf("a later call gets %+v", a)
	}
}
