package main

import (
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/clients"
)

// TestUseHostile tests gateways that send other values than those of a set-up, or another address.
func TestUseHostile(t *testing.T) {
	h := newUseHome(t)
	good := h.values
	for name, change := range map[string]func(v *clients.Values){
		"script":           func(v *clients.Values) { v.Base = "javascript:alert(1)" },
		"file":             func(v *clients.Values) { v.Base = "file:///etc/passwd" },
		"no host":          func(v *clients.Values) { v.Base = "https:///v1" },
		"lines":            func(v *clients.Values) { v.Base += "\nexport A=1" },
		"escape":           func(v *clients.Values) { v.Base += "/\x1b[2J" },
		"direction":        func(v *clients.Values) { v.Base += "/\u202e" },
		"password":         func(v *clients.Values) { v.Base = strings.Replace(v.Base, "//", "//a:b@", 1) },
		"query":            func(v *clients.Values) { v.Base += "?a=b" },
		"fragment":         func(v *clients.Values) { v.Base += "#a" },
		"no key":           func(v *clients.Values) { v.Key = "" },
		"key with lines":   func(v *clients.Values) { v.Key += "\nA=1" },
		"long key":         func(v *clients.Values) { v.Key += strings.Repeat("x", 500_000) },
		"other key":        func(v *clients.Values) { v.Key = "sk-ant-x" },
		"no model":         func(v *clients.Values) { v.Model = "" },
		"model with lines": func(v *clients.Values) { v.Model += "\n" },
		"model":            func(v *clients.Values) { v.Model = "a\", \"b\": \"c" },
		"long model":       func(v *clients.Values) { v.Model = strings.Repeat("m", 129) },
		"window":           func(v *clients.Values) { v.Window = 1<<53 + 1 },
		"negative window":  func(v *clients.Values) { v.Window = -1 },
	} {
		h.values = good
		change(&h.values)
		h.set(exitRuntime, "the gateway's answer to the code is not the expected one; create a new code", "claude")
		if _, err := os.Lstat(h.path(".claude", "settings.json")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the settings are written: %v", name, err)
		}
	}
	// The client would send its requests elsewhere: that is shown, and nothing is written if they are not answered.
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	defer elsewhere.Close()
	h.values = good
	h.values.Base = elsewhere.URL
	h.set(exitRuntime, "Its requests go to "+elsewhere.URL+", as "+good.Base+" says.\n", "claude")
	h.use(exitRuntime, "was not set up", "--undo", "claude")
	h.values.Base = good.Base + "/sub"
	h.set(exitOK, "Its requests go to "+good.Base+"/sub, as "+good.Base+" says.\n", "claude")
}
