package caddymodule

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

var update = flag.Bool("update", false, "write the golden files again")

const divider = "----------\n"

// TestAdapt checks each testdata/adapt/*.txt: a Caddyfile, a line of dashes,
// and the JSON that it adapts to, or `error: ` and a part of the message.
func TestAdapt(t *testing.T) {
	files, err := filepath.Glob("testdata/adapt/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("finding golden files: %v, %d files", err, len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			checkGolden(t, file)
		})
	}
}

// checkGolden adapts one file's Caddyfile and compares.
func checkGolden(t *testing.T, file string) {
	content, err := os.ReadFile(file)
	must(t, err)
	source, want, ok := strings.Cut(string(content), divider)
	if !ok {
		t.Fatalf("%s has no line of dashes", file)
	}
	adapted, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(source), nil)
	if part, wantError := strings.CutPrefix(strings.TrimSpace(want), "error: "); wantError {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Fatalf("error %v, want one with %q", err, part)
		}
		return
	}
	must(t, err)
	for _, w := range warnings {
		t.Errorf("warning: %s", w)
	}
	var got bytes.Buffer
	must(t, json.Indent(&got, adapted, "", "  "))
	got.WriteByte('\n')
	if *update {
		must(t, os.WriteFile(file, []byte(source+divider+got.String()), 0o644))
		return
	}
	if got.String() != want {
		t.Errorf("adapted JSON differs; got:\n%s\nwant:\n%s", got.String(), want)
	}
}
