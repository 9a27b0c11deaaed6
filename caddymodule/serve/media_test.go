package serve

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

const (
	formType  = "multipart/form-data; boundary=B"
	modelPart = "--B\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n"
	filePart  = "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n"
	formEnd   = "--B--\r\n"
)

// postForm sends a form of a transcription.
func (g *testGateway) postForm(body io.Reader) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/audio/transcriptions", body)
	r.Header.Set("Content-Type", formType)
	r.Header.Set("Accept", "application/octet-stream")
	g.send(w, r)
	return w
}

// recorded returns the record of an answered request. Records of one millisecond have no order.
func (g *testGateway) recorded(t *testing.T, w *httptest.ResponseRecorder) activity.Request {
	t.Helper()
	recent := g.backend.Activity.Recent(store.DefaultAccount)
	i := slices.IndexFunc(recent, func(r activity.Request) bool { return r.ID == w.Header().Get("X-Request-Id") })
	if i < 0 {
		t.Fatalf("the request is not recorded: %+v", recent)
	}
	return recent[i]
}

// A form reaches the model server as it is, except for the model. The answer comes as it is.
func TestTranscription(t *testing.T) {
	g := newGateway(t, 64<<20)
	g.setLimits(t, limits.UsageLimits{TokensPerMinute: 10}) // a file has no tokens
	var got string
	g.answer = func(r *http.Request) *http.Response {
		body, _ := io.ReadAll(r.Body)
		got = r.Method + " " + r.URL.String() + " " + r.Header.Get("Content-Type") + " " + r.Header.Get("Accept") + "\n" +
			string(body)
		if int64(len(body)) != r.ContentLength {
			t.Errorf("%d bytes of length %d", len(body), r.ContentLength)
		}
		return upstreamAnswer("text/vtt; charset=utf-8", strings.NewReader("WEBVTT\n\n"), -1)
	}
	w := g.postForm(strings.NewReader(filePart + modelPart + formEnd))
	want := "POST http://ollama/v1/audio/transcriptions " + formType + " */*\n" +
		filePart + strings.Replace(modelPart, "\nm\r", "\nup\r", 1) + formEnd
	if w.Code != http.StatusOK || w.Body.String() != "WEBVTT\n\n" || got != want {
		t.Errorf("%d %v %s; the model server got %q, want %q", w.Code, w.Header(), w.Body, got, want)
	}
	h := w.Header()
	if h.Get("Content-Type") != "text/vtt; charset=utf-8" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Error(h)
	}
	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("application/json", strings.NewReader(`{"text":"a","duration":"2.5"}`), -1)
	}
	r := g.recorded(t, g.postForm(strings.NewReader(modelPart+filePart+formEnd)))
	if r.Operation != "audio/transcriptions" || r.Amount != 2.5 || r.Unit != "seconds" || r.InputTokens != 0 ||
		r.Estimated {
		t.Errorf("%+v", r)
	}
	g.returned(t)
}

// A key that may not use the model is refused before the file arrives.
func TestRefusedBeforeFile(t *testing.T) {
	g := newGateway(t, 64<<20)
	file, upload := io.Pipe()
	defer upload.Close()
	go func() {
		_, _ = io.WriteString(upload, strings.Replace(modelPart, "\nm\r", "\nother\r", 1)+filePart)
		// The rest of the file never arrives.
	}()
	if w := g.postForm(file); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "`other`") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w := g.postForm(strings.NewReader(modelPart + modelPart + formEnd))
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "duplicated") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	g.returned(t)
}

// A form waits for memory, and then fails.
func TestFormsWaitForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, 64<<20)
		g.answer = func(*http.Request) *http.Response {
			return upstreamAnswer("text/plain", strings.NewReader("a"), -1)
		}
		all := g.backend.Memory.Open("", "", "")
		if err := all.Set(64 << 20); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		w := g.postForm(strings.NewReader(modelPart + filePart + formEnd))
		if waited := time.Since(begun); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
			waited < uploadWait || waited > uploadWait+time.Second {
			t.Errorf("%d %v after %v", w.Code, w.Header(), waited)
		}
		time.AfterFunc(time.Second, all.Release)
		if w := g.postForm(strings.NewReader(modelPart + filePart + formEnd)); w.Code != http.StatusOK {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// lateFile is a form whose file comes 40 seconds after its model.
type lateFile struct {
	io.Reader
	wait func()
}

func (l *lateFile) Read(p []byte) (int, error) {
	l.wait()
	return l.Reader.Read(p)
}

// A slow upload may still wait for memory when it needs it. A compressed form does not wait in its turn to be
// decompressed, for which others wait.
func TestWaitsOfUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, 64<<20)
		g.answer = func(*http.Request) *http.Response {
			return upstreamAnswer("text/plain", strings.NewReader("a"), -1)
		}
		form := modelPart + strings.Replace(filePart, "RIFF", strings.Repeat("RIFF", 1<<20), 1) + formEnd
		others := g.backend.Memory.Open("", "", "")
		late := &lateFile{strings.NewReader(form[len(modelPart):]), sync.OnceFunc(func() {
			time.Sleep(40 * time.Second)
			if err := others.Set(63 << 20); err != nil {
				t.Error(err)
			}
			time.AfterFunc(time.Second, func() { _ = others.Set(0) })
		})}
		if w := g.postForm(io.MultiReader(strings.NewReader(modelPart), late)); w.Code != http.StatusOK {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if err := others.Set(63 << 20); err != nil {
			t.Fatal(err)
		}
		defer others.Release()
		w, body := httptest.NewRecorder(), bytes.NewReader(gzipped(t, []byte(form)))
		r := httptest.NewRequest(http.MethodPost, "/v1/images/edits", body)
		r.Header.Set("Content-Type", formType)
		r.Header.Set("Content-Encoding", "gzip")
		begun := time.Now()
		if g.send(w, r); w.Code != http.StatusServiceUnavailable || time.Since(begun) > time.Second {
			t.Errorf("%d %s after %v", w.Code, w.Body, time.Since(begun))
		}
	})
}

// No browser takes bytes for a page. Events of a recording show no time of a first token.
func TestBytesAndEvents(t *testing.T) {
	g := newGateway(t, 64<<20)
	g.answer = func(*http.Request) *http.Response {
		answer := upstreamAnswer("", strings.NewReader("<html><script>"), -1)
		answer.Header = http.Header{}
		return answer
	}
	w := g.postForm(strings.NewReader(modelPart + filePart + formEnd))
	h := w.Header()
	if h.Get("Content-Type") != "application/octet-stream" || h.Get("Content-Security-Policy") != "sandbox" {
		t.Error(h)
	}
	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("text/event-stream", strings.NewReader("data: {\"type\":\"transcript.text.delta\"}\n\n"+
			"data: {\"type\":\"transcript.text.done\",\"usage\":{\"input_tokens\":3,\"output_tokens\":2}}\n\n"), -1)
	}
	r := g.recorded(t, g.postForm(strings.NewReader(modelPart+filePart+formEnd)))
	if r.OutputTokens != 2 || !r.Streamed || r.FirstTokenMillis != 0 {
		t.Errorf("%+v", r)
	}
}

// readingTunnel reads a part of each body, and refuses the request.
type readingTunnel struct {
	g    *testGateway
	n    int64
	sent int
}

func (r *readingTunnel) Send(request *http.Request, _ string) (*http.Response, error) {
	r.sent++
	_, _ = io.CopyN(io.Discard, request.Body, r.n)
	return nil, link.ErrUpstreamDown
}

// A form whose bytes have begun to leave is not sent again, nor to a fallback.
func TestFormsLeaveOnce(t *testing.T) {
	for n, served := range map[int64]bool{0: true, 1: false} {
		g := withFallback(t, store.TranscriptionModel)
		tunnel := &readingTunnel{g: g, n: n}
		d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
		g.connectOne(store.DefaultAccount, d.Connectors[0], tunnel)
		w := g.postForm(strings.NewReader(modelPart + filePart + formEnd))
		if (w.Header().Get(servedBy) == "m2") != served || (w.Code == http.StatusOK) != served || tunnel.sent != 1 {
			t.Errorf("%d bytes have left: %d %v %s", n, w.Code, w.Header(), w.Body)
		}
		g.returned(t)
	}
}

// Pieces of speech are passed at once. An answer that breaks off is cut, and an error before it is one for the client.
func TestSpeech(t *testing.T) {
	g := newGateway(t, 64<<20)
	pieces, model := io.Pipe()
	g.answer = func(*http.Request) *http.Response { return upstreamAnswer("audio/mpeg", pieces, -1) }
	server := httptest.NewServer(http.HandlerFunc(g.send))
	defer server.Close()
	speak := func() (*http.Response, error) {
		return http.Post(server.URL+"/v1/audio/speech", "application/json", //nolint:noctx // the server ends
			strings.NewReader(`{"model":"m","input":"hällo","voice":"x"}`))
	}
	go func() { _, _ = io.WriteString(model, "one") }()
	response, err := speak()
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 3)
	if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "one" || response.StatusCode != 200 ||
		response.Header.Get("Content-Type") != "audio/mpeg" {
		t.Errorf("%q, %v, %v", first, err, response)
	}
	model.CloseWithError(errors.New("lost"))
	if rest, err := io.ReadAll(response.Body); err == nil || len(rest) > 0 {
		t.Errorf("a broken answer ends cleanly after %q", rest)
	}
	recorded := func() activity.Request {
		wait.Until(t, "the request is recorded", func() bool {
			return len(g.backend.Activity.Recent(store.DefaultAccount)) > 0
		})
		return g.backend.Activity.Recent(store.DefaultAccount)[0]
	}
	if r := recorded(); r.Amount != 5 || r.Unit != "characters" || r.ErrorClass != activity.UpstreamError {
		t.Errorf("%+v", r)
	}
	if response, err := speak(); err != nil || response.StatusCode != http.StatusBadGateway {
		t.Errorf("an answer without a byte: %v, %v", response, err)
	}
}

// Voices are asked of the model that the query names, else of the only one for speech.
func TestVoices(t *testing.T) {
	g := newGateway(t, 64<<20)
	g.answer = func(r *http.Request) *http.Response {
		answer := `{"model":"up","asked":"` + r.Method + " " + r.URL.String() + `"}`
		return upstreamAnswer("application/json", strings.NewReader(answer), -1)
	}
	get := func(path string) string {
		w := httptest.NewRecorder()
		g.send(w, httptest.NewRequest(http.MethodGet, path, nil))
		return fmt.Sprint(w.Code, " ", w.Body)
	}
	const voices, asked = "/v1/audio/voices", `200 {"model":"m","asked":"GET http://ollama/v1/audio/voices?model=up"}`
	for range 2 {
		if got := get(voices + "?model=m&other=1"); got != asked {
			t.Error(got)
		}
	}
	if got := get(voices); !strings.HasPrefix(got, "400") || !strings.Contains(got, "Missing query parameter: model") {
		t.Error(got)
	}
	d, _ := g.backend.Store.Deployment(store.DefaultAccount, "m")
	d.Kind = store.SpeechModel
	if _, err := g.backend.Store.SetDeployment(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if got := get(voices); got != asked {
		t.Error(got)
	}
	models := get("/v1/audio/models")
	if models != `200 {"object":"list","models":[{"id":"m","object":"model"}],"data":[{"id":"m","object":"model"}]}`+"\n" {
		t.Error(models)
	}
}
