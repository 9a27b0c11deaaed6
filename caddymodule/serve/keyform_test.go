package serve

import (
	"strings"
	"testing"
)

// The reason for refusing a malformed key depends on the text alone, even for long and odd texts.
func TestMalformed(t *testing.T) {
	digits := strings.Repeat("aB3", 14) + "z"
	for secret, want := range map[string]string{
		"sk-svc-" + digits:          "",
		"sk-svc-" + digits[1:]:      "malformed",
		"sk-svc-" + digits + "0":    "malformed",
		digits:                      "malformed",
		"'sk-svc-" + digits + "'":   "quoted",
		"sk-svc-" + digits + `"`:    "quoted",
		"“sk-svc-" + digits + "”":   "quoted",
		"Bearer sk-svc-" + digits:   "second_bearer",
		"BEARER  sk-svc-YOUR-KEY":   "second_bearer",
		"sk-svc-YOUR-KEY":           "placeholder",
		"YOUR_API_KEY":              "placeholder",
		"sk-...":                    "placeholder",
		"sk-xxxxxxxxxxxxxxxx":       "placeholder",
		"<your key>":                "placeholder",
		"${POSTERN_KEY}":            "placeholder",
		"EMPTY":                     "placeholder",
		"sk-no-key-required":        "placeholder",
		strings.Repeat("your", 1e6): "malformed",
		"sk-ant-api03-0123456789":   "malformed",
		"sk-svc-\x00":               "malformed",
	} {
		if got := malformed(secret); got != want {
			t.Errorf("%.60q: %q, want %q", secret, got, want)
		}
	}
}
