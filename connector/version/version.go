// Package version reports the version of Postern, in the connector as well as in the
// gateway, which is a part of Caddy with another version.
package version

import (
	"runtime/debug"
	"sync"
)

const module = "github.com/postern-dev/postern"

// Set by the linker: -X github.com/postern-dev/postern/connector/version.number=…
// and ….commit=….
var number, commit string

// Number is the linker's version or, without one, that of the Go toolchain: from the
// tag or the commit in a plain `go build`, from the required version where Postern is
// a plug-in of a Caddy.
func Number() string {
	if number != "" {
		return number
	}
	return read().number
}

// Commit is the linker's commit or, in a plain `go build` inside the repository, the
// Go toolchain's; "unknown" without either.
func Commit() string {
	if commit != "" {
		return commit
	}
	return read().commit
}

// build holds the notes of the Go toolchain.
type build struct{ number, commit string }

var read = sync.OnceValue(func() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	return of(info)
})

// of reads the notes about a program that is Postern, or has it as a part.
func of(info *debug.BuildInfo) build {
	b := build{"(devel)", "unknown"}
	if info.Main.Path == module {
		b.number = known(&info.Main)
		b.commit = revision(info.Settings)
		return b
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			b.number = known(dep)
		}
	}
	return b
}

// known is the version of a module, or of what takes its place: a folder has
// none.
func known(m *debug.Module) string {
	if m.Replace != nil {
		m = m.Replace
	}
	if m.Version == "" {
		return "(devel)"
	}
	return m.Version
}

// revision is the commit that was built from.
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
