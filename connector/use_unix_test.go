//go:build unix

package main

import (
	"os"
	"testing"
)

// TestUseAsRoot tests that root's files do not get into the home folder of a user.
func TestUseAsRoot(t *testing.T) {
	h := newUseHome(t)
	if os.Geteuid() != 0 || os.Chown(h.env["HOME"], 12345, 12346) != nil {
		t.Skip("not root")
	}
	h.set(exitRuntime, "HOME is "+h.env["HOME"]+", which belongs to another user: run this as that user", "claude")
	if files, _ := os.ReadDir(h.env["HOME"]); h.trades.Load() != 0 || len(files) > 0 {
		t.Errorf("%d trades, files %v", h.trades.Load(), files)
	}
}
