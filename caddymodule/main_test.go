package caddymodule

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
)

// TestMain keeps the tests out of Caddy's storage on this machine, whose authority may have expired.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "postern-caddy-")
	if err == nil {
		err = os.Setenv("XDG_DATA_HOME", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	caddy.DefaultStorage = &certmagic.FileStorage{Path: filepath.Join(dir, "caddy")}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}
