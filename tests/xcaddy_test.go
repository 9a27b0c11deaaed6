package tests

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/connector/version"
	"github.com/postern-dev/postern/tests/harness"
)

// xcaddy builds a Caddy that has the same modules as bin/caddy and accepts their options.
func TestBuildWithXcaddy(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds Caddy")
	}
	root, dir := harness.Root(t), t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		command := exec.Command(name, args...)
		command.Dir = root
		// These are the settings of bin/caddy, so its compiled packages are reused.
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath", "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir,
			"XCADDY_GO_BUILD_FLAGS=-trimpath -tags nobadger,nomysql,nopgx -ldflags '-s -w'")
		var messages strings.Builder // among them those of downloads
		command.Stderr = &messages
		out, err := command.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", command, err, out, &messages)
		}
		return string(out)
	}
	xcaddy := strings.TrimSpace(run("go", "-C", "tools", "tool", "-n", "xcaddy"))
	version := strings.TrimSpace(run("go", "list", "-m", "-f", "{{.Version}}", "github.com/caddyserver/caddy/v2"))
	caddy := filepath.Join(dir, "caddy")
	// With a version, Go does not look for published ones.
	run(xcaddy, "build", version, "--with", "github.com/postern-dev/postern@v0.0.0=.", "--output", caddy)

	want := run(filepath.Join(root, "bin", "caddy"), "list-modules")
	if got := run(caddy, "list-modules"); got != want {
		t.Errorf("it has the modules\n%s\nbin/caddy has\n%s", got, want)
	}
	run(caddy, "validate", "--config", "Caddyfile.example", "--adapter", "caddyfile")
}

// A gateway built in a clone hands out the connector that was built with it.
func TestConnectorOfClone(t *testing.T) {
	t.Parallel()
	root := harness.Root(t)
	folder := downloads.NewFolder(filepath.Join(root, "bin", "connectors"))
	archives := folder.Archives()
	i := slices.IndexFunc(archives, func(a downloads.Archive) bool { return a.Platform() == version.Platform() })
	if i < 0 {
		t.Fatalf("%s has no connector for %s: %+v", folder.Path(), version.Platform(), archives)
	}
	a := archives[i]
	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xzf", filepath.Join(folder.Path(), a.Name), "-C", dir,
		"connector").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(filepath.Join(dir, "connector"), "--version").Output()
	if err != nil || !strings.HasPrefix(string(out), "connector v"+a.Version+"\n") {
		t.Errorf("%s prints %q; %v", a.Name, out, err)
	}
	if elf, err := elf.Open(filepath.Join(dir, "connector")); err == nil { // on Linux
		defer elf.Close()
		if libraries, err := elf.ImportedLibraries(); err != nil || len(libraries) > 0 {
			t.Errorf("it needs %q of the machine; %v", libraries, err)
		}
	}
}

// The help is the whole comment of the script.
func TestXcaddyHelp(t *testing.T) {
	t.Parallel()
	script := filepath.Join(harness.Root(t), "xcaddy.sh")
	for command, want := range map[string]error{"help": nil, "nonsense": new(exec.ExitError)} {
		out, err := exec.Command("bash", script, command).CombinedOutput()
		if (err == nil) != (want == nil) || !strings.HasPrefix(string(out), "Builds, runs and tests Postern.") ||
			!strings.Contains(string(out), "skip the tests that need them.\n") {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
		if named := strings.HasSuffix(string(out), "\nxcaddy.sh: unknown command: nonsense\n"); named != (want != nil) {
			t.Errorf("%s: its end is %q", command, out[max(0, len(out)-80):])
		}
	}
}

// `./xcaddy.sh test NAME` finds the tests of both modules.
func TestXcaddyFindsTests(t *testing.T) {
	t.Parallel()
	script := read(t, filepath.Join(harness.Root(t), "xcaddy.sh"))
	dir := t.TempDir()
	for name, text := range map[string]string{
		"xcaddy.sh": string(script), "LICENSE": "", "connector/version/VERSION": "1.2.0",
		"bin/go":                    "#!/bin/sh\necho \"go $*\" >>log\ntouch bin/caddy.new bin/connector.new\n",
		"caddymodule/cli/a_test.go": "func TestHere(t *testing.T) {}\n",
		"connector/a_test.go":       "func FuzzThere(f *testing.F) {}\n",
		"tests/soak/a_test.go":      "", "tools/release/a_test.go": "func TestHereToo(t *testing.T) {}\n",
	} {
		path := filepath.Join(dir, name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)))
	}
	const here = "go test -race -trimpath -gcflags=all=-dwarf=false -p 1 -run %s ./"
	const release = "go -C tools/release test -run %s ."
	for name, want := range map[string][]string{
		"Here": {here + "caddymodule/cli", release}, "TestHere$/sub": {here + "caddymodule/cli"},
		"There":       {here + "connector"},
		"TestHereToo": {release}, "Nowhere": nil,
	} {
		_ = os.Remove(filepath.Join(dir, "log")) // of the last one
		command := exec.Command("bash", filepath.Join(dir, "xcaddy.sh"), "test", name)
		command.Env = append(os.Environ(), "PATH="+dir+"/bin:"+os.Getenv("PATH"))
		if out, err := command.CombinedOutput(); (err == nil) != (want != nil) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		log, _ := os.ReadFile(filepath.Join(dir, "log")) // without a test there is none
		var got []string
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, " test ") {
				got = append(got, strings.Replace(strings.TrimSpace(line), name, "%s", 1))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s runs %q, want %q", name, got, want)
		}
	}
}

// A build without a tag has a version before the next release. A release needs that number in its tag.
func TestXcaddyVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"xcaddy.sh":                 string(read(t, filepath.Join(harness.Root(t), "xcaddy.sh"))),
		"connector/version/VERSION": "1.2.0\n",
		"bin/go":                    "#!/bin/sh\n[ \"$1\" = env ] || echo \"$*\"\n",
	} {
		path := filepath.Join(dir, name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)))
	}
	in := func(name string, args ...string) (string, error) {
		command := exec.Command(name, args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "PATH="+dir+"/bin:"+os.Getenv("PATH"))
		out, err := command.CombinedOutput()
		return string(out), err
	}
	git := func(args ...string) {
		t.Helper()
		if out, err := in("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@localhost"},
			args...)...); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	released := func(want string) {
		t.Helper()
		out, err := in("bash", "xcaddy.sh", "release")
		_, number, _ := strings.Cut(out, " -version ")
		if number, _, _ = strings.Cut(number, " "); err != nil || !regexp.MustCompile("^"+want+"$").MatchString(number) {
			t.Errorf("version %q, not %q: %v\n%s", number, want, err, out)
		}
	}
	released("v1.2.0-dev")
	git("init", "-q")
	git("add", ".")
	git("commit", "-qm", "a")
	released(`v1\.2\.0-dev\.1\+g[0-9a-f]{12}`)
	git("tag", "v1.2.0-rc.1")
	released(`v1\.2\.0-rc\.1`)
	must(t, os.WriteFile(filepath.Join(dir, "bin/go"), []byte("#!/bin/sh\necho \"$*\"\n"), 0o755))
	released(`v1\.2\.0-rc\.1\+dirty`)
	git("commit", "-qam", "b")
	released(`v1\.2\.0-dev\.2\+g[0-9a-f]{12}`)
	git("tag", "v1.1.0")
	if out, err := in("bash", "xcaddy.sh", "release"); err == nil || out != "xcaddy.sh: the tag v1.1.0 is not of 1.2.0, "+
		"the number in connector/version/VERSION\n" {
		t.Errorf("another tag: %v\n%s", err, out)
	}
}
