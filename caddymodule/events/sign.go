package events

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
)

const (
	// signingPrefix marks a secret that is written in base64, as Standard
	// Webhooks (https://www.standardwebhooks.com) has it; others are their bytes.
	signingPrefix = "whsec_"

	// leastSigningKey is the length of a key below which it could be guessed, in
	// bytes.
	leastSigningKey = 16
)

// SigningKey reads the secret of a webhook. No error holds any of it.
func SigningKey(secret string) (key []byte, err error) {
	key = []byte(secret)
	if encoded, ok := strings.CutPrefix(secret, signingPrefix); ok {
		if key, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return nil, errors.New("the webhook's secret begins with whsec_, but is not base64 after it")
		}
	}
	if len(key) < leastSigningKey {
		return nil, fmt.Errorf("the webhook's secret is too short: it needs at least %d bytes; `openssl rand -base64 32` makes one", leastSigningKey)
	}
	return key, nil
}

// sign adds the headers by which a receiver knows the sender and the time of an
// event: a recorded one cannot be sent again later.
func sign(h http.Header, key []byte, d delivery, now time.Time) {
	at := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(d.id + "." + at + "."))
	mac.Write(d.body)
	h.Set("Webhook-Id", d.id)
	h.Set("Webhook-Timestamp", at)
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
