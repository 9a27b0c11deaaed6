package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The archives have the programs and their documents, and do not show who built them or when.
func TestArchives(t *testing.T) {
	suffix := ".tar.gz"
	name := "connector_0.9.0_" + runtime.GOOS + "_" + runtime.GOARCH + suffix
	for p, want := range map[string][]string{
		"connector": {
			"LICENSE", "completions/_connector", "completions/connector.bash", "completions/connector.fish",
			"connector",
		},
		"postern": {
			"Caddyfile", "LICENSE", "completions/_postern", "completions/postern.bash", "completions/postern.fish",
			"connectors/" + name, "grafana/postern.json", "postern", "prometheus/rules.yml",
		},
	} {
		files := readTarGz(t, result(p, suffix))
		if got := namesOf(files, "man/*"); !slices.Equal(got, want) {
			t.Errorf("the archive of %s has %q, want %q", p, got, want)
		}
		section := map[string]string{"connector": "1", "postern": "8"}[p]
		if n := len(files) - len(want); n < 5 || len(files["man/"+p+"."+section].text) == 0 {
			t.Errorf("the archive of %s has %d manual pages", p, n)
		}
		for name, file := range files {
			mode := int64(0o644)
			if name == p {
				mode = 0o755
			}
			if h := file.header; h.Mode != mode || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(built.time) {
				t.Errorf("%s in the archive of %s: mode %o, owner %d:%d %s, time %v", name, p, h.Mode, h.Uid, h.Gid,
					h.Uname, h.ModTime)
			}
			for _, secret := range []string{built.root, built.work} {
				if bytes.Contains(file.text, []byte(secret)) {
					t.Errorf("%s in the archive of %s contains %s", name, p, secret)
				}
			}
		}
	}
	handed := readTarGz(t, result("postern", suffix))["connectors/"+name].text
	if own, err := os.ReadFile(result("connector", suffix)); err != nil || !bytes.Equal(handed, own) {
		t.Errorf("the gateway offers another connector, %v", err)
	}
}

// The programs report the version of the release under their own names.
func TestVersionIsShown(t *testing.T) {
	if got := command(t, built.compiled(connector, host), "--version"); !strings.HasPrefix(got, "connector v0.9.0\n") {
		t.Errorf("connector --version prints %q", got)
	}
	for _, argument := range []string{"version", "--version"} {
		if got := command(t, built.compiled(gateway, host), argument); !strings.HasPrefix(got, "postern v0.9.0\ncaddy v2.") {
			t.Errorf("postern %s prints %q", argument, got)
		}
	}
	for _, i := range []int{0, 1, 2} {
		text, err := os.ReadFile(built.completion(gateway, i))
		if err != nil || !bytes.Contains(text, []byte("completion for postern")) {
			t.Errorf("%s is not for postern, %v", built.completion(gateway, i), err)
		}
	}
}

// man renders the manual pages without warnings.
func TestManualPages(t *testing.T) {
	if _, err := exec.LookPath("man"); err != nil {
		t.Skip("man is not installed")
	}
	for _, p := range []program{connector, gateway} {
		pages, err := filepath.Glob(filepath.Join(built.manual(p), "*."+p.section))
		if err != nil || len(pages) == 0 {
			t.Fatalf("%d pages, %v", len(pages), err)
		}
		// A call for each page would take a second for ten pages. In one call, man separates the pages.
		man := exec.Command("man", append([]string{"--warnings", "-E", "UTF-8", "-l"}, pages...)...)
		man.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANPAGER=cat", "MANWIDTH=80")
		var warnings bytes.Buffer
		man.Stderr = &warnings
		if out, err := man.Output(); err != nil || warnings.Len() > 0 || bytes.Count(out, []byte("NAME")) < len(pages) {
			t.Errorf("man: %v\n%s", err, &warnings)
		}
	}
}

// Windows gets a zip file, with the suffix .exe for programs.
func TestZip(t *testing.T) {
	windows := target{"windows", "amd64"}
	r := built
	r.work, r.out, r.parts = t.TempDir(), t.TempDir(), []string{"archives"}
	for _, file := range []string{
		r.compiled(connector, windows), r.completion(connector, 0), r.completion(connector, 3),
		filepath.Join(r.manual(connector), "connector.1"),
	} {
		must(t, create(file, entry{text: []byte("x")}.copyTo))
	}
	must(t, r.archive(connector, windows))
	archive, err := zip.OpenReader(filepath.Join(r.out, "connector_0.9.0_windows_amd64.zip"))
	must(t, err)
	defer archive.Close()
	var names []string
	for _, file := range archive.File {
		names = append(names, file.Name)
		want := fs.FileMode(0o644)
		if file.Name == "connector.exe" {
			want = 0o755
		}
		if file.Mode() != want || !file.Modified.Equal(r.time) {
			t.Errorf("%s: mode %v, time %v", file.Name, file.Mode(), file.Modified)
		}
	}
	if want := []string{
		"LICENSE", "completions/connector.ps1", "connector.exe",
		"man/connector.1",
	}; !slices.Equal(names, want) {
		t.Errorf("the archive has %q, want %q", names, want)
	}
}

// The SBOM has each module of `go version -m` once.
func TestSBOM(t *testing.T) {
	for _, p := range []program{connector, gateway} {
		text := read(t, result(p.name, ".cdx.json"))
		var b bill
		must(t, json.Unmarshal(text, &b))
		if b.Format != "CycloneDX" || b.Spec != "1.6" || b.Version != 1 || b.Metadata.Component.Version != "v0.9.0" ||
			b.Metadata.Component.Type != "application" {
			t.Errorf("the head is %+v", b)
		}
		var want []string
		for line := range strings.Lines(command(t, "go", "version", "-m", built.compiled(p, host))) {
			if words := strings.Fields(line); len(words) > 2 && words[0] == "dep" {
				want = append(want, "pkg:golang/"+strings.ToLower(words[1])+"@"+strings.ReplaceAll(words[2], "+", "%2B"))
			}
		}
		var got []string
		for _, c := range b.Components[1:] {
			got = append(got, c.PURL)
		}
		if !slices.Equal(got, want) || len(want) < 5 {
			t.Errorf("the SBOM of %s has\n%q, want\n%q", p.name, got, want)
		}
		if b.Components[0].PURL != "pkg:golang/std@"+strings.TrimPrefix(runtime.Version(), "go") {
			t.Errorf("the standard library is %+v", b.Components[0])
		}
	}
}

func TestChecksums(t *testing.T) {
	text := read(t, filepath.Join(built.out, checksumsName))
	files, err := os.ReadDir(built.out)
	must(t, err)
	if n := strings.Count(string(text), "\n"); n != len(files)-1 {
		t.Errorf("%d checksums for %d files", n, len(files)-1)
	}
	check := exec.Command("sha256sum", "--check", "--strict", checksumsName)
	check.Dir = built.out
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
}

// A folder with other files is not replaced.
func TestFolderIsKept(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o644))
	if err := run(t.Context(), []string{"-version", "v0.9.0", "today"}); err == nil ||
		!strings.Contains(err.Error(), "unexpected argument") {
		t.Errorf("the error is %v", err)
	}
	err := run(t.Context(), []string{"-version", "v0.9.0", "-out", dir})
	if err == nil || !strings.Contains(err.Error(), "is not a release") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "thesis.tex")); err != nil {
		t.Error(err)
	}
}

// Two clones in folders with different names give the same bytes.
func TestReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds two releases")
	}
	var sums []string
	for _, name := range []string{"one", "another"} {
		clone := filepath.Join(t.TempDir(), name)
		command(t, "git", "clone", "-q", "--no-hardlinks", built.root, clone)
		command(t, filepath.Join(clone, "xcaddy.sh"), "release", "-targets", host.String())
		sum := read(t, filepath.Join(clone, "dist", checksumsName))
		sums = append(sums, string(sum))
	}
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") < 5 {
		t.Errorf("the checksums differ:\n%s\n%s", sums[0], sums[1])
	}
}
