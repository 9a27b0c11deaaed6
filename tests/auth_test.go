package tests

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// Many requests race with the revocation: none may begin after it.
func TestNoRequestAfterRevocation(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "m", upstream.Echo)
	id, key := r.Gateway.Key(t, "leaver", "*")
	c := r.Gateway.Client(t, key)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var served []time.Time // starts of requests that succeeded
	refused := 0
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				a, err := c.Send(c.Request(ctx, t, http.MethodPost, "/v1/chat/completions", harness.Chat("m", "")))
				mu.Lock()
				if err == nil && a.Status == 200 {
					served = append(served, start)
				} else {
					refused++
				}
				mu.Unlock()
			}
		})
	}
	harness.Poll(t, limit, "having served some", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if len(served) < 50 {
			return fmt.Errorf("only %d", len(served))
		}
		return nil
	})
	r.Revoke(t, id)
	revoked := time.Now()
	harness.Poll(t, limit, "having refused some", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if refused < 50 {
			return fmt.Errorf("only %d", refused)
		}
		return nil
	})
	stop()
	wg.Wait()
	for _, start := range served {
		if start.After(revoked) {
			t.Fatalf("a request that began %v after the revocation was served", start.Sub(revoked))
		}
	}
}

// A revocation or a change of a key ends the streams that it no longer allows, and frees the model server. From the
// moment it returns, requests are refused. Other requests, of this key and of others, continue.
func TestChangedKeyInTheStream(t *testing.T) {
	t.Parallel()
	// Neither a token nor a ping shows the gateway that a stream must end.
	r := newInProcess(t, inprocess.Options{Translator: serve.Translator{KeepAlive: time.Hour}})
	r.serve(t, "tokens", upstream.SlowTokens(10*time.Millisecond, nil))
	r.serve(t, "silent", func(x *upstream.Exchange) {
		x.Stream()
		x.Chunk(upstream.Role(up("silent")))
		x.Hold(nil)
	})
	r.serve(t, "other", upstream.Echo)
	stays := r.Stream(t, harness.Chat("tokens", `,"stream":true`))
	changes := map[string]struct {
		method, path string
		body         func() map[string]any
		status       int
		code         string
	}{
		"revoked":  {"DELETE", "", func() map[string]any { return nil }, 401, "invalid_api_key"},
		"disabled": {"POST", "/disable", func() map[string]any { return map[string]any{} }, 401, "invalid_api_key"},
		"expired": {"PATCH", "", func() map[string]any {
			return map[string]any{"expires_at": time.Now().Add(2 * time.Second).Format(time.RFC3339Nano)}
		}, 401, "invalid_api_key"},
		"rotated": {
			"POST", "/rotate", func() map[string]any { return map[string]any{"grace": "0s"} }, 401,
			"invalid_api_key",
		},
		"narrowed": {
			"PATCH", "", func() map[string]any { return map[string]any{"scope": "other"} }, 404,
			"model_not_found",
		},
		"restricted": {
			"PATCH", "", func() map[string]any { return map[string]any{"allowed_ips": []string{"192.0.2.0/24"}} },
			403, "ip_not_allowed",
		},
	}
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			_, key := r.Gateway.Key(t, name, "*")
			client := r.Gateway.Client(t, key)
			stream := client.Stream(t, harness.Chat("silent", `,"stream":true`))
			stream.Expect(t, upstream.Role("silent"))
			r.Manage(t, c.method, "/keys/"+name+c.path, c.body(), nil)
			if name == "expired" {
				time.Sleep(2 * time.Second)
			}
			answer := client.Post(t, harness.Chat("silent", ""))
			if answer.Status != c.status || !strings.Contains(answer.Body, `"code":"`+c.code+`"`) {
				t.Errorf("the next request: %d %s", answer.Status, answer.Body)
			}
			rest, err := stream.Rest()
			if err != nil || strings.Contains(rest, "[DONE]") || !strings.Contains(rest, `"code":"`+c.code+`"`) {
				t.Errorf("the stream ended with %q, %v", rest, err)
			}
			if name == "narrowed" {
				if other := client.Post(t, harness.Chat("other", "")); other.Status != 200 {
					t.Errorf("another model: %d %s", other.Status, other.Body)
				}
			}
		})
	}
	r.up.WaitRunning(t, 1)
	if gone := r.up.Gone(up("silent")); len(gone) != len(changes) {
		t.Errorf("the model server was left %d times", len(gone))
	}
	if _, err := stays.Next(); err != nil {
		t.Errorf("the stream of another key: %v", err)
	}
}
