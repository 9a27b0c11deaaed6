// Package oidc tests signing in by a real OpenID Connect provider: zitadel's, with its login page.
package oidc

import (
	"os"
	"testing"

	"github.com/postern-dev/postern/tests/browser"
	"github.com/postern-dev/postern/tests/harness"
)

func TestMain(m *testing.M) {
	code := harness.Run(m)
	browser.Stop()
	os.Exit(code)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
