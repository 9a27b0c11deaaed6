package tests

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// A plain completion: the request reaches the upstream unchanged, but for the model's name, and so does the
// answer the client.
func testCompletion(t *testing.T, g *harness.Gateway) {
	r := rigOf(t, g)
	r.serve(t, "plain", func(x *upstream.Exchange) {
		body := upstream.Completion(up("plain"), "hi")
		x.Head(200, "Content-Type: application/json", "Server: llama.cpp", "Access-Control-Allow-Origin: *",
			"X-Accel-Buffering: no", "Set-Cookie: a=b", "Connection: keep-alive", fmt.Sprintf("Content-Length: %d", len(body)))
		x.Write(body)
	})
	const request = `{ "messages" : [{"role":"user","content":"\u00e9 \"model\":\"plain\" </x>"}],` + "\n" +
		`"temperature":1e-1, "seed":12345678901234567890,"x":{"model":"inner","model":"twice"}, "model" : %s ,"top_p":0.10 }`
	a := r.Post(t, fmt.Sprintf(request, `"plain"`),
		"Cookie: session=1", "Origin: https://evil.example", "Referer: https://evil.example/", "Accept-Encoding: gzip",
		"X-Api-Key: "+r.APIKey, "Idempotency-Key: k", "X-Stainless-Lang: js", "OpenAI-Organization: o", "Keep-Alive: 5")

	if a.Status != 200 || a.Body != upstream.Completion("plain", "hi") {
		t.Errorf("status %d, body\n%s\nwant\n%s", a.Status, a.Body, upstream.Completion("plain", "hi"))
	}
	id := a.Header.Get("X-Request-Id")
	if !regexp.MustCompile(`^req_[A-Za-z0-9_-]{8,}$`).MatchString(id) || a.Header.Get("Request-Id") != id {
		t.Errorf("x-request-id %q, request-id %q", id, a.Header.Get("Request-Id"))
	}
	if ct := a.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("content type %q", ct)
	}
	for _, name := range []string{"Access-Control-Allow-Origin", "X-Accel-Buffering", "Set-Cookie"} {
		if v := a.Header.Get(name); v != "" {
			t.Errorf("the upstream's %s: %s reached the client", name, v)
		}
	}
	if v := a.Header.Get("Server"); strings.Contains(v, "llama") {
		t.Errorf("the upstream's Server header reached the client: %s", v)
	}

	got := r.up.Last(t)
	sent := fmt.Sprintf(request, `"up-plain"`)
	if string(got.Body) != sent {
		t.Errorf("the upstream received\n%s\nwant\n%s", got.Body, sent)
	}
	want := fmt.Sprintf("POST /v1/chat/completions\nHost: %s\nContent-Length: %d\nContent-Type: application/json\n\n%s",
		strings.TrimPrefix(r.up.URL, "http://"), len(sent), sent)
	if string(without(got, "Accept", "Accept-Encoding", "Connection", "User-Agent").Bytes()) != want {
		t.Errorf("the upstream received\n%s\nwant\n%s", got.Bytes(), want)
	}
	if enc := got.Header.Get("Accept-Encoding"); enc != "" && enc != "identity" {
		t.Errorf("the upstream is asked for encoding %q", enc)
	}
}

// without returns the request without headers that have no information about the client.
func without(q upstream.Request, names ...string) upstream.Request {
	q.Header = q.Header.Clone()
	for _, name := range names {
		q.Header.Del(name)
	}
	return q
}

// A streamed completion, event by event: each must arrive before the upstream sends the next one, so nothing
// may buffer it.
func testStreamIsNotBuffered(t *testing.T, g *harness.Gateway) {
	r := rigOf(t, g)
	next := make(chan bool)
	r.serve(t, "s", func(x *upstream.Exchange) {
		x.Stream()
		for _, e := range storyOf(up("s")) {
			<-next
			x.Chunk(e)
		}
		<-next
		x.End()
	})
	s := func() *harness.Stream {
		go func() { next <- true }()
		return r.Stream(t, harness.Chat("s", `,"stream":true`))
	}()
	if ct := s.Header.Get("Content-Type"); s.Status != 200 || !strings.HasPrefix(ct, "text/event-stream") {
		t.Fatalf("status %d, content type %q", s.Status, ct)
	}
	if s.Header.Get("Cache-Control") != "no-cache" || s.Header.Get("X-Accel-Buffering") != "no" ||
		s.Header.Get("Content-Length") != "" {
		t.Errorf("headers of the stream: %v", s.Header)
	}
	for i, e := range storyOf("s") {
		s.Expect(t, e)
		if i < len(storyOf("s"))-1 {
			next <- true
		}
	}
	go func() { next <- true }()
	if rest, err := s.Rest(); rest != "" || err != nil {
		t.Errorf("after [DONE]: %q, %v", rest, err)
	}
}

// storyOf is a short stream as a model of that name sends it.
func storyOf(model string) []string {
	return []string{
		upstream.Role(model), upstream.Delta(model, "Once"), upstream.Delta(model, " upon\n"),
		upstream.Delta(model, "data: [DONE]\n\n"),
		upstream.Finish(model, "stop"), upstream.Done,
	}
}

// clip shortens what a failed test prints.
func clip(s string) string {
	if len(s) <= 2000 {
		return s
	}
	return fmt.Sprintf("%s…(%d bytes)…%s", s[:1000], len(s), s[len(s)-500:])
}
