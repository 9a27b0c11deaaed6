package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// Actions are pinned by commit, because tags can be moved. Only single jobs have the right to write.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(harness.Root(t), ".github", "workflows")
	files, err := filepath.Glob(filepath.Join(folder, "*.yml"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %d workflows", err, len(files))
	}
	uses := regexp.MustCompile(`uses: (.*)`)
	pinned := regexp.MustCompile(`^(\./\S+|[\w./-]+@[0-9a-f]{40} # v[\d.]+)$`)
	for _, file := range files {
		text := read(t, file)
		for _, m := range uses.FindAllSubmatch(text, -1) {
			if !pinned.Match(m[1]) {
				t.Errorf("%s: %s is not pinned by commit and version", file, m[1])
			}
		}
		if !strings.Contains(string(text), "\npermissions:\n  contents: read\n") {
			t.Errorf("%s does not start with the right to read alone", file)
		}
	}
}

// The cache of the tests depends on all modules that they build.
func TestWorkflowCache(t *testing.T) {
	t.Parallel()
	root := harness.Root(t)
	text := read(t, filepath.Join(root, ".github", "workflows", "test.yml"))
	for _, sum := range []string{"go.sum", "tools/go.sum", "tools/release/go.sum", "tests/sdk/go/go.sum"} {
		if _, err := os.Stat(filepath.Join(root, sum)); err != nil || !strings.Contains(string(text), "  "+sum+"\n") {
			t.Errorf("test.yml does not cache by %s (%v)", sum, err)
		}
	}
}

// The notes of a release are its section alone, not those of its candidates.
func TestReleaseNotes(t *testing.T) {
	t.Parallel()
	text := read(t, filepath.Join(harness.Root(t), ".github", "workflows", "release.yml"))
	script := regexp.MustCompile(`awk .*CHANGELOG\.md`).Find(text)
	dir := t.TempDir()
	changelog := "# Changelog\n\n## 1.2.10\n\nten\n\n## 1.2.1 (2027-01-02)\n\none\n\n## 1.2.1-rc.1\n\ncandidate\n"
	must(t, os.WriteFile(filepath.Join(dir, "CHANGELOG.md"), []byte(changelog), 0o600))
	for version, want := range map[string]string{"1.2.1": "one", "1.2.1-rc.1": "candidate", "1.2.10": "ten", "1.2": ""} {
		command := exec.Command("sh", "-c", "version="+version+"; "+string(script))
		command.Dir = dir
		if out, err := command.Output(); err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: %q, %v", version, out, err)
		}
	}
}
