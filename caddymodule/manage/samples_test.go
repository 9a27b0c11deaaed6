package manage_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

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
		{"whisper-1", "transcription", "/v1/audio/transcriptions", "WAVEfmt ", "application/json", `{"text":" "}`,
			"no text, as the recording is silent", ""},
		{"kokoro", "speech", "/v1/audio/speech", `"voice":"af_sky"`, "audio/mpeg", "ID3...", "6 bytes of audio/mpeg", ""},
		{"sdxl-turbo", "image", "/v1/images/generations", `"response_format":"b64_json"`, "application/json",
			`{"data":[{"b64_json":"AAAA"}]}`, "an image of 3 bytes", ""},
		{"flux", "image", "/v1/images/generations", "", "application/json", `{"data":[]}`, "", "has no image; is the"},
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
				if got.OK != (tt.error == "") || got.Answer != tt.shown || !strings.Contains(got.Error, tt.error) || got.Tools != "" {
					t.Errorf("%+v", got)
				}
				if !strings.HasPrefix(asked, tt.path+" ") || !strings.Contains(asked, tt.asked) || !strings.Contains(asked, tt.name) {
					t.Errorf("it was asked %q", asked)
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
		"bge-reranker": {answer(200, "application/json", `{"results":[`+strings.Repeat(`{"index":0},`, 1000)+`{"index":1}]}`), true},
		"whisper":      {answer(200, "application/json", `{"text":"`+strings.Repeat("long ", 1000)+`"}`), true},
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
