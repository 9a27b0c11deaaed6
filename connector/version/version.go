// Package version reports the version of Postern, in the connector as well as in the
// gateway, which is a part of Caddy with another version.
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

// of reads the notes about a program that is Postern, or has it as a part. A module
// that is replaced by a folder has no version.
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
