package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Set by the linker: -X main.version=… -X main.commit=….
var version, commit string

// programVersion is the linker's version or, in a plain `go build`, the one that
// the Go toolchain takes from the tag or the commit.
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// programCommit is the linker's commit or, in a plain `go build` inside the
// repository, the one that the Go toolchain finds.
func programCommit() string {
	if commit != "" {
		return commit
	}
	found, modified := "unknown", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				found = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = ", modified"
			}
		}
	}
	return found + modified
}

// versionText is what --version prints.
func versionText() string {
	return fmt.Sprintf("connector %s\ncommit %s\n%s %s/%s\n", programVersion(), programCommit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
