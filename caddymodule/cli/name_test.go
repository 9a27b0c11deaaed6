package cli

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCommandName(t *testing.T) {
	inPath, elsewhere := t.TempDir(), t.TempDir()
	t.Setenv("PATH", inPath)
	for _, dir := range []string{inPath, elsewhere} {
		if err := os.WriteFile(filepath.Join(dir, "caddy"), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for arg0, want := range map[string]string{
		"":                                "caddy",
		"caddy":                           "caddy",
		filepath.Join(inPath, "caddy"):    "caddy",
		filepath.Join(elsewhere, "caddy"): filepath.Join(elsewhere, "caddy"),
		"bin/caddy":                       "bin/caddy",
		"./postern":                       "./postern",
	} {
		if got := ProgramName(arg0); got != want {
			t.Errorf("ProgramName(%q) = %q, want %q", arg0, got, want)
		}
	}
}
