// Package version returns the version of Postern, in the connector and in the gateway. It
// differs from the version of Caddy.
package version

import (
	"cmp"
	"runtime/debug"
	"sync"
)

const module = "github.com/postern-dev/postern"

// Set by the linker: -X github.com/postern-dev/postern/connector/version.number=…
// and ….commit=….
var number, commit string

// Number returns the version set by the linker or, without one, by the Go toolchain: from
// the tag or the commit in a plain `go build`, or the required version if Postern is a
// plugin of Caddy.
func Number() string { return cmp.Or(number, read().number) }

// Commit returns the commit set by the linker or, in a plain `go build` inside the
// repository, by the Go toolchain. Otherwise it is "unknown".
func Commit() string { return cmp.Or(commit, read().commit) }

// build is the build information of the Go toolchain.
type build struct{ number, commit string }

var read = sync.OnceValue(func() build {
	if info, ok := debug.ReadBuildInfo(); ok {
		return of(info)
	}
	return of(new(debug.BuildInfo))
})

// of returns the build information of Postern, as the main module or a dependency. A
// module that is replaced by a folder has no version.
func of(info *debug.BuildInfo) build {
	b := build{"(devel)", "unknown"}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path != module {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		b.number = cmp.Or(m.Version, b.number)
	}
	if info.Main.Path == module {
		b.commit = revision(info.Settings)
	}
	return b
}

func revision(settings []debug.BuildSetting) string {
	found, modified := "unknown", ""
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
