package tests

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Echo)
	anonymous := r.Gateway.Client(t, "")
	wrong := "sk-svc-" + strings.Repeat("A", len(r.APIKey)-len("sk-svc-"))
	r.Hide(wrong)
	if !strings.HasPrefix(r.APIKey, "sk-svc-") || len(r.APIKey) < len("sk-svc-")+43 {
		t.Errorf("a key has %d characters, which is less than 256 bits", len(r.APIKey))
	}
	for _, c := range []struct {
		name    string
		headers []string
		ok      bool
	}{
		{"none", nil, false},
		{"bearer", []string{"Authorization: Bearer " + r.APIKey}, true},
		{"bearer in lower case", []string{"Authorization: bearer " + r.APIKey}, true},
		{"x-api-key", []string{"X-Api-Key: " + r.APIKey}, true},
		{"wrong", []string{"Authorization: Bearer " + wrong}, false},
		{"wrong x-api-key", []string{"X-Api-Key: " + wrong}, false},
		{"no secret", []string{"Authorization: Bearer sk-svc-"}, false},
		{"basic", []string{"Authorization: Basic " + r.APIKey}, false},
		{"both, the first right", []string{"Authorization: Bearer " + r.APIKey, "X-Api-Key: " + wrong}, true},
		{"both, the first wrong", []string{"Authorization: Bearer " + wrong, "X-Api-Key: " + r.APIKey}, false},
		{"a prefix of the key", []string{"Authorization: Bearer " + r.APIKey[:len(r.APIKey)-1]}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := anonymous.Post(t, harness.Chat("m", ""), c.headers...)
			if c.ok {
				if a.Status != 200 {
					t.Errorf("status %d, %s", a.Status, a.Body)
				}
				return
			}
			e := a.ExpectError(t, 401, "invalid_request_error", "invalid_api_key")
			if strings.Contains(e.Message, wrong) {
				t.Errorf("the error repeats the key: %s", e.Message)
			}
			if a.Header.Get("X-Request-Id") == "" {
				t.Error("the answer has no x-request-id")
			}
		})
	}
	// Without a valid key nothing else is told, and nothing is read.
	for _, path := range []string{"/v1/models", "/v1/nosuch", "/v1/responses"} {
		anonymous.Do(t, http.MethodGet, path, "").ExpectError(t, 401, "invalid_request_error", "invalid_api_key")
	}
	a := anonymous.Do(t, http.MethodPost, "/v1/messages", `{}`, "anthropic-version: 2023-06-01")
	expectAnthropic(t, a, 401, "authentication_error")
}

// expectAnthropic checks an error in the shape of the messages dialect.
func expectAnthropic(t *testing.T, a harness.Answer, status int, kind string) {
	t.Helper()
	head := fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":"`, kind)
	tail := fmt.Sprintf(`"},"request_id":%q}`, a.Header.Get("Request-Id"))
	if a.Status != status || !strings.HasPrefix(a.Body, head) || !strings.HasSuffix(strings.TrimSpace(a.Body), tail) {
		t.Errorf("status %d, %s; want %d, %s…%s", a.Status, a.Body, status, head, tail)
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	for _, name := range []string{"team/qwen3:8b", "team/llama", "other", "teams"} {
		r.serve(t, name, upstream.Echo)
	}
	_, key := r.Gateway.Key(t, "scoped", "team/*, teams")
	c := r.Gateway.Client(t, key)
	for model, ok := range map[string]bool{"team/qwen3:8b": true, "team/llama": true, "teams": true, "other": false} {
		a := c.Post(t, harness.Chat(model, ""))
		if ok && a.Status != 200 {
			t.Errorf("%s: status %d, %s", model, a.Status, a.Body)
		}
		if !ok {
			e := a.ExpectError(t, 404, "invalid_request_error", "model_not_found")
			if e.Param == nil || *e.Param != "model" {
				t.Errorf("param is not model: %s", a.Body)
			}
		}
	}
	// The scope is that of the body's model, whatever else names one.
	a := c.Do(t, http.MethodPost, "/v1/chat/completions?model=teams", harness.Chat("other", ""), "X-Model: teams")
	a.ExpectError(t, 404, "invalid_request_error", "model_not_found")
	// A model out of scope is no different from one that does not exist.
	unknown := c.Post(t, harness.Chat("nosuch", "")).ExpectError(t, 404, "invalid_request_error", "model_not_found")
	hidden := c.Post(t, harness.Chat("other", "")).ExpectError(t, 404, "invalid_request_error", "model_not_found")
	if strings.Replace(hidden.Message, "other", "nosuch", 1) != unknown.Message {
		t.Errorf("%q and %q", hidden.Message, unknown.Message)
	}
	harness.Poll(t, 5*time.Second, "the reasons in the access log", func(context.Context) error {
		for _, reason := range []string{`"reason":"out_of_scope"`, `"reason":"unknown_model"`} {
			if !strings.Contains(r.Gateway.Process.Log(), reason) {
				return fmt.Errorf("there is no %s", reason)
			}
		}
		return nil
	})
}

// Revoking a key cuts its running streams, frees the upstream, and leaves
// other keys alone; from the moment it returns the key is refused.
func TestRevokedKeyInTheStream(t *testing.T) {
	r := newRig(t, harness.Options{})
	r.serve(t, "tokens", upstream.SlowTokens(10*time.Millisecond, nil))
	r.serve(t, "m", upstream.Echo)
	id, key := r.Gateway.Key(t, "leaver", "*")
	leaver := r.Gateway.Client(t, key)
	body := harness.Chat("tokens", `,"stream":true`)
	stays, cut := r.Stream(t, body), leaver.Stream(t, body)
	r.up.WaitRunning(t, 2)
	for _, s := range []*harness.Stream{stays, cut} {
		s.Expect(t, upstream.Role("tokens"))
		s.Expect(t, upstream.Delta("tokens", "token1 "))
	}
	r.Revoke(t, id)
	revoked := time.Now()
	leaver.Post(t, harness.Chat("m", "")).ExpectError(t, 401, "invalid_request_error", "invalid_api_key")
	rest, err := cut.Rest()
	if d := time.Since(revoked); d > time.Second {
		t.Errorf("the stream ended %v after the key was revoked", d)
	}
	if strings.Contains(rest, "[DONE]") || strings.Contains(rest, `"finish_reason":"`) {
		t.Errorf("the stream was cut with %q, %v: like one that is finished", rest, err)
	}
	if err == nil && !strings.Contains(rest, `data: {"error":`) {
		t.Errorf("the stream ended cleanly without an error: %q", rest)
	}
	r.up.WaitRunning(t, 1)
	if gone := r.up.Gone(up("tokens")); len(gone) != 1 || gone[0].Sub(revoked) > 500*time.Millisecond {
		t.Errorf("the upstream was left at %v, the key revoked at %v", gone, revoked)
	}
	if next, err := stays.Next(); err != nil || !strings.Contains(next, "token") {
		t.Errorf("the other key's stream: %q, %v", next, err)
	}
}

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
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				start := time.Now()
				a, err := c.Send(c.Request(ctx, t, http.MethodPost, "/v1/chat/completions", harness.Chat("m", "")))
				if err == nil && a.Status == 200 {
					mu.Lock()
					served = append(served, start)
					mu.Unlock()
				}
			}
		})
	}
	harness.Poll(t, 10*time.Second, "having served some", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if len(served) < 50 {
			return fmt.Errorf("only %d", len(served))
		}
		return nil
	})
	r.Revoke(t, id)
	revoked := time.Now()
	time.Sleep(300 * time.Millisecond)
	stop()
	wg.Wait()
	for _, start := range served {
		if start.After(revoked) {
			t.Fatalf("a request that began %v after the revocation was served", start.Sub(revoked))
		}
	}
}
