package serve

import (
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

func TestWithoutSecrets(t *testing.T) {
	const key = "sk-svc-0123456789abcdefghij"
	bare := strings.Repeat("aZ7", 14) + "q" // as of a session or an invitation
	for uri, want := range map[string]string{
		"/v1/models?a=b&c":                      "/v1/models?a=b&c",
		"/v1/models?key=" + key + "&b=1":        "/v1/models?REDACTED",
		"/v1/models?a=%zz&k=%73k-svc-0123":      "/v1/models?REDACTED",
		"/v1/models?" + key + "=1":              "/v1/models?REDACTED",
		"/v1/models/" + key + "/x":              "REDACTED",
		"/v1/models?x=pmt%5F0123456789&y=ptt_1": "/v1/models?REDACTED",
		"/v1/models?x=%2525%2573k-svc-1&y=%25":  "/v1/models?REDACTED",
		"/v1/models?x=%zz%73k-svc-1&y=%":        "/v1/models?REDACTED",
		"/console/join?x=" + bare + "&y=1":      "/console/join?REDACTED",
		"/console/join/" + bare:                 "REDACTED",
		"/console/join?x=" + bare[1:] + "&y=1":  "/console/join?x=" + bare[1:] + "&y=1",
		"/console/join?x=" + bare + "0":         "/console/join?x=" + bare + "0",
		"/console/join?code=PAIR-7K3M-Q9TX":     "/console/join?REDACTED",
	} {
		r := &http.Request{RequestURI: uri, Header: http.Header{"Authorization": {"Bearer " + key}, "Accept": {"*/*"}}}
		if got := WithoutSecrets(r); got.RequestURI != want || got.Header.Get("Accept") != "*/*" || r.RequestURI != uri {
			t.Errorf("%s is shown as %s, want %s", uri, got.RequestURI, want)
		}
		if got := CarriesSecret(r); got != (uri != want) {
			t.Errorf("%s: carries a secret: %v", uri, got)
		}
	}
}

func TestWithoutSecretsHidesPreauthentications(t *testing.T) {
	shown := link.PreauthClaim("pin", "PAIR-7K3M-Q9TX")
	r := &http.Request{
		RequestURI: link.WebSocketPath,
		Header:     http.Header{"Authorization": {"Bearer x"}, link.PreauthHeader: {shown}},
	}
	if got := WithoutSecrets(r).Header.Get(link.PreauthHeader); !CarriesSecret(r) || got != redacted {
		t.Errorf("a preauthentication is logged as %s", got)
	}
}

// Requests of unauthenticated clients are searched for secrets. The memory for it is bounded by the
// size of the text, however often the text is encoded.
func TestSearchForSecretsIsBounded(t *testing.T) {
	for _, piece := range []string{"25", "%25", "%", "%73", "/%", "&%3D"} {
		text := "/%" + strings.Repeat(piece, (1<<20)/len(piece))
		r := &http.Request{RequestURI: text, Header: http.Header{"Accept": {text}}}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		WithoutSecrets(r)
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
			t.Errorf("%q: 2 MiB of text take %d MiB of memory", piece, used>>20)
		}
	}
}

// FuzzWithoutSecrets checks that no text around a secret keeps it in the log.
func FuzzWithoutSecrets(f *testing.F) {
	f.Add("/v1/models?key=", "&b=1")
	f.Add("/v1/%", "?%zz")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "sk-svc-0123456789"
		r := &http.Request{RequestURI: before + secret + after, Header: http.Header{}}
		if shown := WithoutSecrets(r).RequestURI; !CarriesSecret(r) || strings.Contains(shown, "sk-svc-") {
			t.Errorf("%q is shown as %q", r.RequestURI, shown)
		}
	})
}
