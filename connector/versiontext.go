package main

import (
	"fmt"
	"runtime"

	"github.com/postern-dev/postern/connector/version"
)

// versionText is what --version prints.
func versionText() string {
	return fmt.Sprintf("connector %s\ncommit %s\n%s %s/%s\n", version.Number(), version.Commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
