package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// Metrics are on Caddy's own endpoint; no label contains a key or a name that a client chose.
func TestMetrics(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Echo)
	r.serve(t, "tokens", upstream.SlowTokens(10*time.Millisecond, nil))
	for range 3 {
		r.Post(t, harness.Chat("m", ""))
	}
	r.Post(t, harness.Chat("made-up-name", ""))
	r.Gateway.Client(t, "sk-svc-wrong").Post(t, harness.Chat("m", ""))
	s := r.Stream(t, harness.Chat("tokens", `,"stream":true`))
	s.Expect(t, upstream.Role("tokens"))
	wants := []string{
		`postern_requests_total{code="200",deployment="m",dialect="chat",outcome="ok"} 3`,
		`postern_requests_total{code="404",deployment="_other",dialect="chat",outcome="client"} 1`,
		`postern_inflight_requests{deployment="tokens",dialect="chat"} 1`,
		`postern_time_to_first_byte_seconds_count{deployment="m",dialect="chat"} 3`,
		`postern_request_duration_seconds_count{deployment="m",dialect="chat"} 3`,
		`postern_tunnel_connections{connector="` + r.con.ID + `",transport="quic"} 1`,
		`postern_auth_failures_total{reason="malformed"} 1`,
	}
	var metrics string
	harness.Poll(t, limit, "the metrics", nilContext(func() error { // some follow an answer's end
		metrics = r.Metrics(t)
		for _, want := range wants {
			if !strings.Contains(metrics, want+"\n") {
				return fmt.Errorf("they lack %s:\n%s", want,
					strings.Join(regexp.MustCompile(`(?m)^postern_.*$`).FindAllString(metrics, -1), "\n"))
			}
		}
		return nil
	}))
	for _, secret := range []string{r.APIKey, "sk-svc", "made-up-name", harness.Prompt} {
		if strings.Contains(metrics, secret) {
			t.Errorf("metrics hold %q", secret)
		}
	}
}

// The access log has the key, deployment, connector and dialect.
func testAccessLog(t *testing.T, g *harness.Gateway) {
	r := rigOf(t, g)
	r.serve(t, "org/m:1", upstream.Echo)
	if a := r.Post(t, harness.Chat("org/m:1", "")); a.Status != 200 {
		t.Fatalf("status %d, %s", a.Status, a.Body)
	}
	r.Post(t, harness.Chat("nosuch", ""))
	harness.Poll(t, limit, "the reason of the refusal", func(context.Context) error {
		if !strings.Contains(r.logged(`"reason":"unknown_model"`), `"outcome":"client"`) {
			return errors.New("it is not in the log")
		}
		return nil
	})
	var entry map[string]any
	harness.Poll(t, limit, "the access log's entry", func(context.Context) error {
		return json.Unmarshal([]byte(r.logged(`"http.log.access`)), &entry)
	})
	for name, want := range map[string]any{
		"key_id": r.keyID, "deployment": "org/m:1", "connector": r.con.ID, "dialect": "chat", "model": "org/m:1",
		"status": 200.0, "user_id": r.keyID, "outcome": "ok",
	} {
		if entry[name] != want {
			t.Errorf("%s is %v, want %v", name, entry[name], want)
		}
	}
}

// logged returns the first line of the gateway's log that contains the text and the id of the rig's key.
func (r *rig) logged(text string) string {
	for line := range strings.Lines(r.Gateway.Process.Log()) {
		if strings.Contains(line, text) && strings.Contains(line, r.keyID) {
			return line
		}
	}
	return ""
}

// A key in x-api-key must not reach the log either: Caddy itself hides only Authorization. The harness
// searches the logs when the test ends.
func testKeyInOtherHeaderIsNotLogged(t *testing.T, g *harness.Gateway) {
	r := rigOf(t, g)
	r.serve(t, "m", upstream.Echo)
	anonymous := r.Gateway.Client(t, "")
	for _, path := range []string{"/v1/chat/completions", "/v1/messages", "/v1/nosuch"} {
		anonymous.Do(t, http.MethodPost, path, harness.Chat("m", ""), "X-Api-Key: "+r.APIKey)
	}
	mistyped := "sk-svc-mistyped-but-nearly-right-0123456789"
	r.Hide(mistyped)
	anonymous.Do(t, http.MethodPost, "/v1/chat/completions", harness.Chat("m", ""), "X-Api-Key: "+mistyped)
	r.Post(t, `{"model":"m","messages":[{"role":"user","content":"`+harness.Prompt+`"`)
	r.serve(t, "dies", func(x *upstream.Exchange) { x.Die() })
	r.Post(t, harness.Chat("dies", ""))
	r.serve(t, "echoes", upstream.Answer(500, "application/json", `{"error":"cannot parse: `+harness.Prompt+`"}`))
	r.Post(t, harness.Chat("echoes", ""))
}
