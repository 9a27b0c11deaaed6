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
	// signingPrefix marks a base64 secret as specified by Standard Webhooks
	// (https://www.standardwebhooks.com). Other secrets are used as raw bytes.
	signingPrefix = "whsec_"

	// minSigningKey is the minimum length of a key in bytes: shorter keys could
	// be guessed.
	minSigningKey = 16
)

// SigningKey parses the secret of a webhook. Errors never include any part of it.
func SigningKey(secret string) (key []byte, err error) {
	key = []byte(secret)
	if encoded, ok := strings.CutPrefix(secret, signingPrefix); ok {
		if key, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			return nil, errors.New("the webhook's secret begins with whsec_, but the rest is not valid base64")
		}
	}
	if len(key) < minSigningKey {
		return nil, fmt.Errorf("the webhook's secret is too short: it needs at least %d bytes; "+
			"create one with `openssl rand -base64 32`", minSigningKey)
	}
	return key, nil
}

// sign adds the headers that authenticate the sender and the time of an event. The
// time protects against replays.
func sign(h http.Header, key []byte, m message, now time.Time) {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(m.id + "." + timestamp + "."))
	mac.Write(m.Body)
	h.Set("Webhook-Id", m.id)
	h.Set("Webhook-Timestamp", timestamp)
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
