package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/clients"
)

// otherRoot has not issued the certificate of the gateway.
const otherRoot = `-----BEGIN CERTIFICATE-----
MIIBdzCCAR2gAwIBAgIUM0u9KleyNCWLb/HiltY4rCB+LqcwCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFb3RoZXIwIBcNMjYxMTI5MTgxOTU3WhgPMjEyNjExMDUxODE5
NTdaMBAxDjAMBgNVBAMMBW90aGVyMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
P/sn0jBkJ65cu9ZfJwTqUE/Un2LENzDf25IvJUKHHIlA2kEyP5qDJJy5GTY7Y2st
RLPdiVIJH1tx8MFsgOIMAKNTMFEwHQYDVR0OBBYEFKr0r7hjMFeE5k/bdPe/MPIn
Q2cIMB8GA1UdIwQYMBaAFKr0r7hjMFeE5k/bdPe/MPInQ2cIMA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIgB4z/Dc0+GL69hauyyUaxQZEOMPNxrLiU
uO2xp3PUDikCIQD50fmBQ8Kb7vHlpCN9FC/yl6UCnlB4dj3koMCFwU7wGg==
-----END CERTIFICATE-----
`

// root is the root certificate of the gateway.
func (h *useHome) root() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.gateway.Certificate().Raw})
}

// A hash stands for the root certificate of the gateway: the command loads it, checks it first, and keeps it for the
// client.
func TestUseRoot(t *testing.T) {
	h := newUseHome(t)
	sum := sha256.Sum256(h.root())
	hash, wrong := "sha256:"+hex.EncodeToString(sum[:]), "sha256:"+strings.Repeat("0", 64)
	kept := h.path(".config", "postern", clients.Values{Base: h.gateway.URL}.Provider()+".crt")
	use := []string{"claude", useCode, "--gateway", h.gateway.URL, "--ca"}
	h.use(exitRuntime, "is not the root certificate with the SHA-256 of --ca", append(use, wrong)...)
	h.use(exitOK, "Nothing was changed.", append(use, hash, "--dry-run")...)
	if files, _ := filepath.Glob(h.path(".config", "postern", "*.crt")); len(files) != 0 || h.trades.Load() != 0 {
		t.Fatalf("kept %v, %d trades", files, h.trades.Load())
	}
	h.use(exitOK, "A test request was answered.", append(use, hash)...)
	h.holds(kept, string(h.root()), 0o644)
	settings, err := os.ReadFile(h.path(".claude", "settings.json"))
	if err != nil || !strings.Contains(string(settings), `"NODE_EXTRA_CA_CERTS": "`+kept+`"`) {
		t.Errorf("%v: %s", err, settings)
	}
	// The advice is not what was given.
	h.write(h.path("other.crt"), otherRoot, 0o644)
	h.use(exitRuntime, "the authority of --ca has not issued it", "codex", useCode, "--gateway", h.gateway.URL, "--ca",
		h.path("other.crt"))
}

// Shells complete the clients, and no files.
func TestUseCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"use":        strings.ReplaceAll(usable, ", ", "\n") + "\n:4\n",
		"use claude": ":4\n",
	} {
		words := append([]string{"__complete"}, append(strings.Fields(args), "")...)
		if _, out, _ := execute(t, "", nil, words...); out != want {
			t.Errorf("%s: %q", args, out)
		}
	}
}

// TestUseSmallWindow: a client works only with a window of some size.
func TestUseSmallWindow(t *testing.T) {
	h := newUseHome(t)
	h.values.Window = 8192
	h.set(exitOK, "Warning: The context window of my-model is too small for Claude Code: 8k of 32k tokens.", "claude")
	h.values.Window = 32768
	_, stdout, _ := execute(t, "", h.env, "use", "claude", useCode, "--gateway", h.gateway.URL, "--ca", h.ca, "--yes")
	if strings.Contains(stdout, "Warning") {
		t.Error(stdout)
	}
}
