package manage_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// Models of other kinds get one request each, from which their servers would make something.
func TestModelTestOfKinds(t *testing.T) {
	for _, tt := range []struct{ name, kind, path, asked, media, answer, shown, error string }{
		{
			"bge-reranker", "rerank", "/v1/rerank", `"documents":["Apples are sweet.","It is Paris."]`, "application/json",
			`{"results":[{"index":1,"relevance_score":0.98765},{"index":0,"relevance_score":-3}]}`,
			"document 2: 0.988 document 1: -3", "",
		},
		{
			"whisper-1", "transcription", "/v1/audio/transcriptions", "WAVEfmt ", "application/json", `{"text":" "}`,
			"no text, because the recording is silent", "",
		},
		{"kokoro", "speech", "/v1/audio/speech", `"voice":"af_sky"`, "audio/mpeg", "ID3...", "6 bytes of audio/mpeg", ""},
		{
			"sdxl-turbo", "image", "/v1/images/generations", `"response_format":"b64_json"`, "application/json",
			`{"data":[{"b64_json":"AAAA"}]}`, "an image of 3 bytes", "",
		},
		{"flux", "image", "/v1/images/generations", "", "application/json", `{"data":[]}`, "", "has no image; check the"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(t)
				var asked string
				home := g.connector("default", "home",
					map[string]http.Handler{"ollama": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.Method == http.MethodGet && r.URL.RequestURI() == "/v1/audio/voices?model="+tt.name {
							answer(200, "application/json", `{"voices":[{"id":"af_sky","name":"Sky"}]}`)(w, r)
							return
						}
						body, _ := io.ReadAll(r.Body)
						asked = r.URL.Path + " " + string(body)
						answer(200, tt.media, tt.answer)(w, r)
					})})
				d := want[manage.Deployment](g, 200, "PUT", "/deployments/"+tt.name,
					fmt.Sprintf(`{"connector":%q}`, home.info.Connector))
				if string(d.Kind) != tt.kind {
					t.Errorf("the name suggests %s", d.Kind)
				}
				got := want[manage.TestResult](g, 200, "POST", "/deployments/"+tt.name+"/test", "{}")
				if got.OK != (tt.error == "") || got.Answer != tt.shown || !strings.Contains(got.Error, tt.error) ||
					got.Tools != "" {
					t.Errorf("%+v", got)
				}
				if !strings.HasPrefix(asked, tt.path+" ") || !strings.Contains(asked, tt.asked) ||
					!strings.Contains(asked, tt.name) {
					t.Errorf("it was asked %q", asked)
				}
			})
		})
	}
}

// An embeddings model is asked for a vector.
func TestModelTestOfEmbeddings(t *testing.T) {
	const vector, estimate = `{"data":[{"embedding":[0.5,-1e-3,2]}],"usage":{"prompt_tokens":3}}`, 8
	reports := func(tokens string) string { return strings.Replace(vector, ":3}", ":"+tokens+"}", 1) }
	for _, tt := range []struct {
		name               string
		answer             http.HandlerFunc
		dimensions, tokens int
		status             int // recorded
		error              string
	}{
		{"works", answer(200, "application/json", vector), 3, 3, 200, ""},
		{"fewer tokens than none", answer(200, "application/json", reports("-9000000000000000000")), 3, estimate, 200, ""},
		{"too many tokens", answer(200, "application/json", reports("9000000000000000000")), 3, estimate, 200, ""},
		{
			"no vector", answer(200, "application/json", `{"data":[]}`), 0, estimate, 200,
			"has no vector; check the model's kind",
		},
		{"not JSON", answer(200, "text/html", "<html>"), 0, estimate, 502, "answer is empty"},
		{
			"refused", answer(501, "application/json", `{"error":"start the server with --embeddings"}`), 0, estimate, 502,
			"--embeddings",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(t)
				var asked string
				home := g.connector("default", "home",
					map[string]http.Handler{"ollama": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						body, _ := io.ReadAll(r.Body)
						asked += r.URL.Path + string(body)
						time.Sleep(100 * time.Millisecond)
						tt.answer(w, r)
					})})
				want[manage.Deployment](g, 200, "PUT", "/deployments/public",
					fmt.Sprintf(`{"connector":%q,"model":"upstream-model","kind":"embeddings"}`, home.info.Connector))
				got := want[manage.TestResult](g, 200, "POST", "/deployments/public/test", "{}")
				if got.OK != (tt.error == "") || !strings.Contains(got.Error, tt.error) || got.Dimensions != tt.dimensions ||
					got.Tools != "" {
					t.Errorf("result = %+v", got)
				}
				if got.OK && got.AnswerMillis != 100 {
					t.Errorf("it took %v ms", got.AnswerMillis)
				}
				if asked != `/v1/embeddings{"model":"upstream-model","input":"Hello."}` {
					t.Errorf("it was asked %s", asked)
				}
				synctest.Wait()
				recent := g.activity.Recent("default")
				if len(recent) != 1 || recent[0].Dialect != "chat" || recent[0].Streamed || recent[0].Status != tt.status {
					t.Fatalf("recorded %+v", recent)
				}
				if recent[0].InputTokens != tt.tokens || recent[0].Estimated != (tt.tokens == estimate) {
					t.Errorf("recorded %+v, want %d tokens", recent, tt.tokens)
				}
			})
		})
	}
}

// What a model server answers to a test is bounded: endless sound, many scores, long texts.
func TestSamplesAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		serve http.HandlerFunc
		ok    bool
	}{
		"kokoro": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "audio/mpeg")
			for piece := strings.Repeat("x", 32<<10); ; {
				if _, err := io.WriteString(w, piece); err != nil {
					return
				}
			}
		}, false},
		"bge-reranker": {
			answer(200, "application/json", `{"results":[`+strings.Repeat(`{"index":0},`, 1000)+`{"index":1}]}`), true,
		},
		"whisper": {answer(200, "application/json", `{"text":"`+strings.Repeat("long ", 1000)+`"}`), true},
	} {
		g := newGateway(t)
		home := g.connector("default", "home", map[string]http.Handler{"ollama": test.serve})
		want[manage.Deployment](g, 200, "PUT", "/deployments/"+name, fmt.Sprintf(`{"connector":%q}`, home.info.Connector))
		got := want[manage.TestResult](g, 200, "POST", "/deployments/"+name+"/test", "{}")
		if got.OK != test.ok || (got.Error == "") != test.ok || len(got.Answer) > 404 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
