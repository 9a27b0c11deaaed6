package serve

import (
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/store"
)

// malformed returns the reason why a text does not have the form of a key, or "". It depends on the
// text alone, so it reveals nothing about the keys of the gateway.
func malformed(secret string) string {
	switch {
	case store.IsKey(secret):
		return ""
	case strings.ContainsAny(secret, "\"'`“”"):
		return "quoted"
	case bearer(secret) != "":
		return "second_bearer"
	case isPlaceholder(secret):
		return "placeholder"
	}
	return "malformed"
}

// placeholders are values that stand for a key in examples of settings, or that satisfy clients of
// servers without keys. partsOfPlaceholders are parts of such values, and of variables that were
// not expanded.
var (
	placeholders = []string{
		"dummy", "empty", "false", "key", "lm-studio", "none", "not-needed", "null", "ollama", "secret", "test", "token",
		"undefined",
	}
	partsOfPlaceholders = []string{
		"your", "-key", "_key", "apikey", "...", "…", "xxxx", "changeme", "change-me", "placeholder", "replace", "$", "<",
		"{", "%",
	}
)

// isPlaceholder reports whether a text stands for a key that was not filled in.
func isPlaceholder(secret string) bool {
	const maxSize = 100 // bytes
	if len(secret) > maxSize {
		return false
	}
	secret = strings.ToLower(secret)
	contains := func(part string) bool { return strings.Contains(secret, part) }
	return slices.Contains(placeholders, secret) || slices.ContainsFunc(partsOfPlaceholders, contains)
}
