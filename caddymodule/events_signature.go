package caddymodule

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
)

const (
	// signingPrefix marks a secret that is written in base64, as Standard
	// Webhooks (https://www.standardwebhooks.com) has it; others are their bytes.
	signingPrefix = "whsec_"

	// leastSigningKey is the length of a key below which it could be guessed, in
	// bytes.
	leastSigningKey = 16
)

// signingKey reads the secret of a webhook, nil if it has none. No error holds
// any of it.
func signingKey(secret string, repl *caddy.Replacer) ([]byte, error) {
	if secret == "" {
		return nil, nil
	}
	text, err := repl.ReplaceOrErr(secret, true, true)
	if err != nil {
		return nil, fmt.Errorf("reading the webhook's secret: %w", err)
	}
	key := []byte(strings.TrimSpace(text)) // files end with a line feed
	if encoded, ok := strings.CutPrefix(string(key), signingPrefix); ok {
		if key, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return nil, errors.New("the webhook's secret begins with whsec_, but is not base64 after it")
		}
	}
	if len(key) < leastSigningKey {
		return nil, fmt.Errorf("the webhook's secret is too short: it needs at least %d bytes; `openssl rand -base64 32` makes one", leastSigningKey)
	}
	return key, nil
}

// sign adds the headers by which a receiver knows that an event comes from here,
// and when: whoever keeps one cannot send it again later.
func sign(h http.Header, key []byte, d delivery, now time.Time) {
	at := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(d.id + "." + at + "."))
	mac.Write(d.body)
	h.Set("Webhook-Id", d.id)
	h.Set("Webhook-Timestamp", at)
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
