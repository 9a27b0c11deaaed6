package serve

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/tests/rig/odd"
)

// oddRequests are requests in testdata/odd with all fields that are read, the model server's whole
// answer to each, and requests that use as many fields of an answer as possible.
var oddRequests = []struct{ path, request, answer, asks string }{
	{"/v1/chat/completions", "chat", "answer", `"logprobs":true,"messages":[{"role":"user","content":"hi"}]`},
	{"/v1/completions", "completions", "text", `"prompt":"hi"`},
	{"/v1/embeddings", "embeddings", "vectors", `"input":"hi"`},
	{"/v1/messages", "messages", "answer", `"max_tokens":9,"messages":[{"role":"user","content":"hi"}],` +
		`"tools":[{"name":"read","input_schema":{}}]`},
	{"/v1/messages/count_tokens", "messages", "", ""},
	{"/v1/responses", "responses", "answer", `"input":"hi","top_logprobs":2,"include":["reasoning.encrypted_content"],` +
		`"tools":[{"type":"function","name":"read"},{"type":"custom","name":"patch"}]`},
	{"/v1/responses/input_tokens", "responses", "", ""},
}

// An oddGateway runs in a synctest bubble, where code takes no time. Therefore it processes every
// sample.
type oddGateway struct {
	*testing.T
	*testGateway
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer
	log    bytes.Buffer
	caught uint64            // panics before this gateway
	known  *strings.Replacer // of the ids of a kept response
	sent   int               // requests
	ended  int               // requests, as an Observer counts them
	counts int               // requests whose tokens are known, as an Observer counts them
	served int               // requests that the model server has answered
}

func newOddGateway(t *testing.T) *oddGateway {
	g := &oddGateway{T: t, testGateway: newGateway(t, 64<<20), spans: tracetest.NewSpanRecorder(), caught: panics.Total()}
	g.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(g.spans)).Tracer("test")
	server := g.Translator.Server
	server.Route = func(string, tunnel.Target) (r tunnel.DeploymentRoute, ok bool) { return r, false } // without windows
	server.Observer, server.Logger = g, slog.New(slog.NewTextHandler(&g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	_, err := g.backend.Store.EditKey(t.Context(), store.DefaultAccount, g.key.ID(), func(k *store.Key) error {
		k.Limits = limits.UsageLimits{RequestsPerDay: 1 << 20, TokensPerDay: 1 << 30}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	g.answer = func(*http.Request) *http.Response { return respond(200, "application/json", completionOf("hi")) }
	var kept struct {
		ID     string
		Output []struct{ ID string }
	}
	w := g.play("/v1/responses", `{"model":"m","input":"hi"}`)
	if err := json.Unmarshal(w.Body.Bytes(), &kept); err != nil || len(kept.Output) == 0 {
		t.Fatalf("%v: %s", err, w.Body)
	}
	g.known = strings.NewReplacer("$RESPONSE", kept.ID, "$ITEM", kept.Output[0].ID)
	return g
}

// Ended implements Observer.
func (g *oddGateway) Ended(*Exchange, Ending) { g.ended++ }

// Counted implements Observer.
func (g *oddGateway) Counted(*Exchange, dialect.Usage) { g.counts++ }

// FirstByte implements Observer.
func (g *oddGateway) FirstByte(*Exchange) { g.served++ }

// The other methods of an Observer.
func (g *oddGateway) Refused(string)                  {}
func (g *oddGateway) Running(*Exchange, float64)      {}
func (g *oddGateway) Rejected(*Exchange, string)      {}
func (g *oddGateway) Limited(limits.State)            {}
func (g *oddGateway) Queued(*Exchange, time.Duration) {}

// play sends a request and waits until all work after the answer is done. Nothing may panic. A
// request without a body is a GET. Every other request is traced.
func (g *oddGateway) play(path, body string) *httptest.ResponseRecorder {
	g.Helper()
	g.log.Reset()
	g.sent++
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(body))
	if g.sent%2 == 0 {
		ctx, span := g.tracer.Start(r.Context(), "server")
		defer span.End()
		r = r.WithContext(ctx)
	}
	g.send(w, r)
	synctest.Wait()
	switch {
	case panics.Total() != g.caught:
		g.Fatalf("a panic was recovered: %s %s\n%s", path, body, &g.log)
	case g.ended != g.sent, g.counts != g.sent:
		g.Fatalf("%d requests, of which %d ended and %d were counted; %s %s", g.sent, g.ended, g.counts, path, body)
	case g.backend.Memory.Stats().Reserved != 0:
		g.Fatalf("%d bytes are reserved after %s %s", g.backend.Memory.Stats().Reserved, path, body)
	case strings.Contains(g.log.String(), odd.Text):
		g.Errorf("the log has content: %s of %s %s", &g.log, path, body)
	}
	g.checkAnswer(w, path+" "+body)
	return w
}

// checkAnswer checks the properties that all answers of the gateway have.
func (g *oddGateway) checkAnswer(w *httptest.ResponseRecorder, of string) {
	g.Helper()
	text := w.Body.String()
	if w.Header().Get("Content-Type") != "text/event-stream" {
		var body struct{ Error struct{ Message string } }
		if err := json.Unmarshal([]byte(text), &body); err != nil || (w.Code != 200) != (body.Error.Message != "") {
			g.Fatalf("%v: %d %s to %s", err, w.Code, text, of)
		}
		return
	}
	for line := range strings.Lines(text) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]\n" && !json.Valid([]byte(data)) {
			g.Fatalf("%s in a stream to %s", data, of)
		}
	}
}

// useKept uses a response that may be kept, with the items of its request.
func (g *oddGateway) useKept(id, of string) {
	g.Helper()
	switch w := g.play("/v1/responses/"+id+"/input_items", ""); w.Code {
	case 404: // the request did not have it stored
	case 200:
		body := `{"model":"m","store":false,"input":"hi","previous_response_id":"` + id + `"}`
		if w := g.play("/v1/responses", body); w.Code != 200 {
			g.Fatalf("%d %s after %s", w.Code, w.Body, of)
		}
	default:
		g.Fatalf("%d %s after %s", w.Code, w.Body, of)
	}
}

// finish lets time pass, so that everything is saved, and checks the sums.
func (g *oddGateway) finish() {
	g.Helper()
	time.Sleep(saveInterval)
	synctest.Wait()
	source := limitSource{store: g.backend.Store, log: g.backend.Activity}
	_, month, err := source.SumsOf(g.Context(), store.DefaultAccount, limits.Subject{Of: limits.OfKey, ID: g.key.ID()})
	if err != nil || month.Requests != int64(g.served) {
		g.Errorf("the usage has %d requests, not %d: %v", month.Requests, g.served, err)
	}
}

// read returns a file of testdata/odd, with the ids of a kept response.
func (g *oddGateway) read(name string) string {
	g.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "odd", name+".json"))
	if err != nil {
		g.Fatal(err)
	}
	return g.known.Replace(string(compact(text)))
}

// upstream answers as the request wants, with and without usage.
func (g *oddGateway) upstream(answer string) {
	whole, events := g.read(answer), strings.Join(eventsOf(g.chunks()), "")
	counted := false
	g.answer = func(r *http.Request) *http.Response {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			g.Error(err)
		}
		var request struct{ Stream any }
		if err := json.Unmarshal(body, &request); err != nil {
			g.Errorf("%v in %s", err, body)
		}
		mediaType, text := "application/json", whole
		if request.Stream == true {
			mediaType, text = "text/event-stream", events
		}
		if counted = !counted; !counted {
			text = strings.ReplaceAll(text, `"usage"`, `"costs"`)
		}
		return respond(200, mediaType, text)
	}
}

// chunks returns the chunks of a streamed answer.
func (g *oddGateway) chunks() (chunks []json.RawMessage) {
	g.Helper()
	if err := json.Unmarshal([]byte(g.read("chunks")), &chunks); err != nil {
		g.Fatal(err)
	}
	return chunks
}

// eventsOf returns the events of a stream with the chunks.
func eventsOf(chunks []json.RawMessage) (events []string) {
	for _, chunk := range chunks {
		events = append(events, "data: "+string(chunk)+"\n\n")
	}
	return append(events, "data: [DONE]\n\n")
}

// each calls f with the mutants of a JSON text, with -short only with three of seven.
func each(text string, f func(n int, mutant string)) {
	odd.Each(text, func(n int, mutant string) {
		if !testing.Short() || n%7 < 3 { // of each value, not the same ones as of the next
			f(n, mutant)
		}
	})
}

// compact returns JSON in one line.
func compact(text []byte) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// findings are inputs that fuzz targets have found, and similar ones.
func findings(t *testing.T) []string {
	t.Helper()
	all := odd.Shapes[:]
	files, err := filepath.Glob("../dialect/testdata/fuzz/*/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("finding what was found: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			for _, kind := range []string{"[]byte(", "string("} {
				if quoted, ok := strings.CutPrefix(strings.TrimSpace(line), kind); ok {
					value, err := strconv.Unquote(strings.TrimSuffix(quoted, ")"))
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					all = append(all, value)
				}
			}
		}
	}
	return all
}

var responseID = regexp.MustCompile(`^{"id":"(resp_\w+)"`)

// TestOddRequests sends requests in which each value is replaced by odd ones. Each request is
// served or is the client's fault. The work after the answer does not fail either.
func TestOddRequests(t *testing.T) {
	for _, c := range oddRequests {
		t.Run(c.path, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newOddGateway(t)
				if c.answer != "" {
					g.upstream(c.answer)
				}
				send := func(body string) {
					w := g.play(c.path, body)
					ofModel := w.Code == 502 && strings.Contains(w.Body.String(), "The model produced invalid tool arguments")
					if w.Code != 200 && (w.Code < 400 || w.Code > 499) && !ofModel {
						t.Fatalf("%d %s to %s", w.Code, w.Body, body)
					}
					if id := responseID.FindStringSubmatch(w.Body.String()); id != nil {
						g.useKept(id[1], body)
					}
				}
				request := g.read(c.request)
				send(request)
				each(request, func(n int, body string) {
					if n%3 == 0 {
						body = strings.Replace(body, `"stream":false`, `"stream":true`, 1)
					}
					send(body)
				})
				for _, body := range findings(t) {
					send(body)
				}
				g.finish()
			})
		})
	}
}

// TestOddAnswers answers requests with invalid whole answers, streams and errors.
func TestOddAnswers(t *testing.T) {
	for _, c := range oddRequests {
		for _, stream := range []string{"false", "true"} {
			if c.answer == "" || c.answer == "vectors" && stream == "true" {
				continue
			}
			t.Run(c.path+" stream "+stream, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					playOddAnswers(newOddGateway(t), c.path, `{"model":"m","stream":`+stream+`,`+c.asks+`}`, c.answer)
				})
			})
		}
	}
}

func playOddAnswers(g *oddGateway, path, body, answer string) {
	play := func(status int, mediaType, text string) *httptest.ResponseRecorder {
		if status < 500 && status != 200 {
			g.served-- // no model has processed the request
		}
		g.answer = func(*http.Request) *http.Response { return respond(status, mediaType, text) }
		return g.play(path, body)
	}
	replace := func(_ int, text string) {
		if w := play(200, "application/json", text); w.Code != 200 && w.Code < 500 {
			g.Fatalf("%d %s to %s", w.Code, w.Body, text)
		}
	}
	each(g.read(answer), replace)
	each(g.read("error"), func(n int, text string) {
		play([]int{400, 404, 429, 500, 503, 200}[n%6], "application/json", text)
	})
	shapes := findings(g.T)
	for n, text := range shapes {
		replace(n, text)
		play(400, "application/json", text)
	}
	defer g.finish()
	if !strings.Contains(body, `"stream":true`) {
		return
	}
	events := eventsOf(g.chunks())
	for i, chunk := range g.chunks() {
		before, after := strings.Join(events[:i], ""), strings.Join(events[i+1:], "")
		instead := func(_ int, text string) { play(200, "text/event-stream", before+"data: "+text+"\n\n"+after) }
		each(string(chunk), instead)
		for n, text := range shapes {
			instead(n, text)
		}
	}
}
