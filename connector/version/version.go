// Package version returns the version of Postern, in the connector and in the gateway. It
// differs from the version of Caddy.
package version

import (
	"cmp"
	_ "embed"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

const module = "github.com/postern-dev/postern"

// next is the number of the next release, such as 0.9.0. xcaddy.sh reads the file, too.
//
//go:embed VERSION
var next string

// pseudo matches the versions that the Go toolchain gives to commits without a tag.
var pseudo = regexp.MustCompile(`[-.][0-9]{14}-([0-9a-f]{12})`)

// Set by the linker: -X github.com/postern-dev/postern/connector/version.number=…
// and ….commit=….
var number, commit string

// Number returns the version set by the linker, or else the tag that the Go toolchain has built:
// that of the commit in a plain `go build`, or the required one if Postern is a plugin of Caddy.
// Without a tag, it is a version before the next release, such as v0.9.0-dev+g849d86f16a92.
func Number() string { return cmp.Or(number, read().number) }

// Commit returns the commit set by the linker, or else by the Go toolchain in a plain `go build`
// inside the repository. Otherwise it is "unknown".
func Commit() string { return cmp.Or(commit, read().commit) }

// Platform returns the system and architecture of this program as releases name them, such
// as "linux/amd64" and "linux/armv7".
func Platform() string { return runtime.GOOS + "/" + read().arch }

// build is the build information of the Go toolchain.
type build struct{ number, commit, arch string }

var read = sync.OnceValue(func() build {
	if info, ok := debug.ReadBuildInfo(); ok {
		return parse(info)
	}
	return parse(new(debug.BuildInfo))
})

// parse returns the build information of Postern, as the main module or a dependency. A module
// that is replaced by a folder has no version.
func parse(info *debug.BuildInfo) build {
	b := build{"v" + strings.TrimSpace(next) + "-dev", "unknown", arch(info.Settings)}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path != module {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if found := pseudo.FindStringSubmatch(m.Version); found != nil {
			b.number, b.commit = b.number+"+g"+found[1], found[1]
		} else if m.Version != "(devel)" {
			b.number = cmp.Or(m.Version, b.number)
		}
	}
	if info.Main.Path == module {
		b.commit = cmp.Or(revision(info.Settings), b.commit)
	}
	return b
}

// arch returns the architecture. On 32-bit ARM it includes the version of the instructions.
func arch(settings []debug.BuildSetting) string {
	for _, s := range settings {
		if s.Key == "GOARM" && runtime.GOARCH == "arm" {
			level, _, _ := strings.Cut(s.Value, ",") // "7,hardfloat"
			return "armv" + level
		}
	}
	return runtime.GOARCH
}

func revision(settings []debug.BuildSetting) string {
	var found, modified string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			found = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = ", modified"
		}
	}
	return found + modified
}
