package version

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestOfBuildInfo(t *testing.T) {
	t.Parallel()
	const revisionText = "7337cacd0b0d7f8b9f1d2f1a51d4f4b5d4f5e6a7"
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: revisionText}, {Key: "vcs.modified", Value: "false"}}
	dirty := []debug.BuildSetting{{Key: "vcs.revision", Value: revisionText}, {Key: "vcs.modified", Value: "true"}}
	caddy := debug.Module{Path: "caddy", Version: "(devel)"}
	dev := "v" + strings.TrimSpace(next) + "-dev"
	if !regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+-dev$`).MatchString(dev) {
		t.Error(dev)
	}
	tests := map[string]struct {
		info debug.BuildInfo
		want build
	}{
		"nothing": {debug.BuildInfo{}, build{dev, "unknown", runtime.GOARCH}},
		"go build in the repository": {
			debug.BuildInfo{Main: debug.Module{Path: module, Version: "v1.2.3"}, Settings: vcs},
			build{"v1.2.3", revisionText, runtime.GOARCH},
		},
		"with changes": {
			debug.BuildInfo{Main: debug.Module{Path: module, Version: "v1.2.3+dirty"}, Settings: dirty},
			build{"v1.2.3+dirty", revisionText + ", modified", runtime.GOARCH},
		},
		"a commit without a tag": {
			debug.BuildInfo{Main: debug.Module{Path: module, Version: "v0.0.0-20261128103112-7337cacd0b0d"}, Settings: vcs},
			build{dev + "+g7337cacd0b0d", revisionText, runtime.GOARCH},
		},
		"xcaddy with a commit after a tag": {
			debug.BuildInfo{
				Main: caddy, Deps: []*debug.Module{{Path: module, Version: "v0.9.1-0.20261128103112-7337cacd0b0d"}},
			},
			build{dev + "+g7337cacd0b0d", "7337cacd0b0d", runtime.GOARCH},
		},
		"go install": {
			debug.BuildInfo{Main: debug.Module{Path: module, Version: "v1.2.3"}},
			build{"v1.2.3", "unknown", runtime.GOARCH},
		},
		"xcaddy": {
			debug.BuildInfo{
				Main: caddy,
				Deps: []*debug.Module{
					{Path: "github.com/caddyserver/caddy/v2", Version: "v2.11.9"},
					{Path: module, Version: "v1.2.3"},
				},
			},
			build{"v1.2.3", "unknown", runtime.GOARCH},
		},
		"xcaddy with a folder": {
			debug.BuildInfo{
				Main: caddy,
				Deps: []*debug.Module{{Path: module, Version: "v0.0.0", Replace: &debug.Module{Path: "/src", Version: "(devel)"}}},
			},
			build{dev, "unknown", runtime.GOARCH},
		},
		"replaced by a folder": {
			debug.BuildInfo{
				Main: caddy,
				Deps: []*debug.Module{{Path: module, Version: "v0.0.0", Replace: &debug.Module{Path: "/src"}}},
			},
			build{dev, "unknown", runtime.GOARCH},
		},
		"replaced by a fork": {
			debug.BuildInfo{
				Main: caddy,
				Deps: []*debug.Module{{
					Path: module, Version: "v1.0.0",
					Replace: &debug.Module{Path: "example.com/fork", Version: "v1.0.1"},
				}},
			},
			build{"v1.0.1", "unknown", runtime.GOARCH},
		},
		// The commit of another repository is not Postern's.
		"part of another repository": {
			debug.BuildInfo{Main: caddy, Settings: vcs, Deps: []*debug.Module{{Path: module, Version: "v1.2.3"}}},
			build{"v1.2.3", "unknown", runtime.GOARCH},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := parse(&test.info); got != test.want {
				t.Errorf("of = %+v, want %+v", got, test.want)
			}
		})
	}
}

// The build script contains the names of these variables. The linker does not report a wrong
// name.
func TestLinkerSetsBoth(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "connector")
	flags := "-X " + module + "/connector/version.number=v7.8.9 -X " + module + "/connector/version.commit=abc123"
	if out, err := exec.Command("go", "build", "-trimpath", "-ldflags", flags, "-o", program,
		module+"/connector").CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(out), "connector v7.8.9\ncommit abc123\n") {
		t.Errorf("--version prints %q", out)
	}
}
