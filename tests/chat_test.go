package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// A plain completion: the request reaches the upstream as it was sent, but for
// the model's name, and the answer the client.
func TestCompletion(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
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
	if string(without(got, "Accept", "Accept-Encoding", "User-Agent").Bytes()) != want {
		t.Errorf("the upstream received\n%s\nwant\n%s", got.Bytes(), want)
	}
	if enc := got.Header.Get("Accept-Encoding"); enc != "" && enc != "identity" {
		t.Errorf("the upstream is asked for encoding %q", enc)
	}
}

// without returns the request less headers that say nothing of the client.
func without(q upstream.Request, names ...string) upstream.Request {
	q.Header = q.Header.Clone()
	for _, name := range names {
		q.Header.Del(name)
	}
	return q
}

// A streamed completion, event by event: each must arrive before the upstream
// sends the next, so nothing on the way may hold it back.
func TestStreamIsNotBuffered(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
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
	if s.Header.Get("Cache-Control") != "no-cache" || s.Header.Get("X-Accel-Buffering") != "no" || s.Header.Get("Content-Length") != "" {
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
		upstream.Role(model), upstream.Delta(model, "Once"), upstream.Delta(model, " upon\n"), upstream.Delta(model, "data: [DONE]\n\n"),
		upstream.Finish(model, "stop"), upstream.Done,
	}
}

// A streamCase is what an upstream sends and what the client must get. The
// model's name in both is M.
type streamCase struct {
	name  string
	more  string   // of the request
	send  []string // one write each
	split bool     // send each byte on its own
	want  string
}

func streamCases() []streamCase {
	const m = "M"
	role, text, finish := upstream.Role(m), upstream.Delta(m, "Grüße 你好 🦙"), upstream.Finish(m, "stop")
	big := upstream.Delta(m, strings.Repeat("0123456789", 30_000))
	call := upstream.ToolDelta(m, `{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":"{"}}`)
	more := upstream.ToolDelta(m, `{"index":0,"function":{"arguments":"\"a\":1}"}}`)
	calls := upstream.Finish(m, "tool_calls")
	return []streamCase{
		{name: "ordinary", send: []string{role, text, finish, upstream.Done}, want: lines(role, text, finish, upstream.Done)},
		{name: "usage that was not asked for", send: []string{role, text, finish, upstream.Usage(m, 5, 2), upstream.Done}, want: lines(role, text, finish, upstream.Done)},
		{
			name: "usage that was asked for", more: `,"stream_options":{"include_usage":true}`,
			send: []string{role, text, finish, upstream.Usage(m, 5, 2), upstream.Done},
			want: lines(role, text, finish, upstream.Usage(m, 5, 2), upstream.Done),
		},
		{name: "tool calls", send: []string{role, call, more, calls, upstream.Done}, want: lines(role, call, more, calls, upstream.Done)},
		{name: "an event of 300 KB", send: []string{role, big, finish, upstream.Done}, want: lines(role, big, finish, upstream.Done)},
		{name: "one byte per write", split: true, send: []string{role, text, finish, upstream.Done}, want: lines(role, text, finish, upstream.Done)},
		{name: "all in one write", send: []string{lines(role, text, finish, upstream.Done)}, want: lines(role, text, finish, upstream.Done)},
		{name: "no [DONE]", send: []string{role, text, finish}, want: lines(role, text, finish, upstream.Done)},
		{
			name: "usage on every chunk", send: []string{withUsage(role, "null"), withUsage(text, "{}"), withUsage(finish, `{"total_tokens":3}`), upstream.Done},
			want: lines(role, text, finish, upstream.Done),
		},
		{
			name: "comments", send: []string{":\n\n", role, ": still here\n\n", text, finish, ":\n\n", upstream.Done},
			want: lines(role, text, finish, upstream.Done),
		},
		{name: "CRLF", send: []string{crlf(role), crlf(text), crlf(finish), crlf(upstream.Done)}, want: lines(role, text, finish, upstream.Done)},
		{
			name: "no space after the colon, other fields", send: []string{"event: x\nid: 7\n" + role, strings.Replace(text, "data: ", "data:", 1), "retry: 5\n\n", finish, upstream.Done},
			want: lines(role, text, finish, upstream.Done),
		},
		{
			name: "error null", send: []string{role, strings.Replace(text, `"index"`, `"error":null,"index"`, 1), finish, upstream.Done},
			want: lines(role, strings.Replace(text, `"index"`, `"error":null,"index"`, 1), finish, upstream.Done),
		},
		{
			name: "a top-level error that is null", send: []string{role, strings.Replace(text, `{"choices"`, `{"error":null,"choices"`, 1), finish, upstream.Done},
			want: lines(role, text, finish, upstream.Done),
		},
	}
}

// withUsage adds usage to a chunk, as servers do that send it all the time.
func withUsage(event, usage string) string {
	return strings.Replace(event, `"model":"M"`, `"model":"M","usage":`+usage, 1)
}

func crlf(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }

// Streams, byte for byte.
func TestStreamBytes(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	for _, c := range streamCases() {
		t.Run(c.name, func(t *testing.T) {
			name := "stream-" + strings.ReplaceAll(c.name, " ", "-")
			name = regexp.MustCompile(`[^a-z0-9-]`).ReplaceAllString(name, "")
			chunks := rename(c.send, up(name))
			if c.split {
				all := lines(chunks...)
				chunks = nil
				for i := range len(all) {
					chunks = append(chunks, all[i:i+1])
				}
			}
			r.serve(t, name, upstream.Events(chunks...))
			a := r.Post(t, harness.Chat(name, `,"stream":true`+c.more))
			want := rename([]string{c.want}, name)[0]
			if a.Body != want || a.Err != nil || a.Status != 200 {
				t.Errorf("status %d, error %v, got\n%s\nwant\n%s", a.Status, a.Err, clip(a.Body), clip(want))
			}
			var sent struct {
				StreamOptions struct {
					IncludeUsage bool `json:"include_usage"`
				} `json:"stream_options"`
				Model string
			}
			if err := json.Unmarshal(r.up.Last(t).Body, &sent); err != nil || !sent.StreamOptions.IncludeUsage || sent.Model != up(name) {
				t.Errorf("the upstream received %s (%v)", r.up.Last(t).Body, err)
			}
		})
	}
}

// rename puts a model's name into events that were made for model M.
func rename(events []string, model string) []string {
	joined := make([]string, len(events))
	for i, e := range events {
		joined[i] = strings.ReplaceAll(e, `"model":"M"`, `"model":`+harness.Quote(model))
	}
	return joined
}

// clip shortens what a failed test prints.
func clip(s string) string {
	if len(s) <= 2000 {
		return s
	}
	return fmt.Sprintf("%s…(%d bytes)…%s", s[:1000], len(s), s[len(s)-500:])
}

// Tools in a plain answer pass as they are, broken arguments included.
func TestToolsPassThrough(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	answer := func(model string) string {
		return `{"choices":[{"finish_reason":"tool_calls","index":0,"message":{"role":"assistant","content":null,"reasoning_content":"so…",` +
			`"tool_calls":[{"type":"function","id":"","function":{"name":"get_weather","arguments":"{\"city\":"}}]}}],"model":"` + model + `"}`
	}
	r.serve(t, "tools", upstream.JSON(answer(up("tools"))))
	tools := `,"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"b":{},"a":{}}}}}],"tool_choice":"auto"`
	a := r.Post(t, harness.Chat("tools", tools))
	if a.Status != 200 || a.Body != answer("tools") {
		t.Errorf("status %d, body %s", a.Status, a.Body)
	}
	if want := harness.Chat(up("tools"), tools); string(r.up.Last(t).Body) != want {
		t.Errorf("the upstream received\n%s\nwant\n%s", r.up.Last(t).Body, want)
	}
}

// Ollama knows only max_tokens, newer clients send only max_completion_tokens.
func TestMaxTokensIsAdded(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "m", upstream.Echo)
	for more, want := range map[string]map[string]any{
		`,"max_completion_tokens":7`:                  {"max_completion_tokens": 7.0, "max_tokens": 7.0},
		`,"max_completion_tokens":7,"max_tokens":9`:   {"max_completion_tokens": 7.0, "max_tokens": 9.0},
		`,"max_tokens":9`:                             {"max_tokens": 9.0},
		`,"nested":{"max_completion_tokens":7},"a":1`: {},
	} {
		if a := r.Post(t, harness.Chat("m", more)); a.Status != 200 {
			t.Fatalf("%s: status %d, %s", more, a.Status, a.Body)
		}
		var sent map[string]any
		if err := json.Unmarshal(r.up.Last(t).Body, &sent); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"max_tokens", "max_completion_tokens"} {
			if sent[name] != want[name] {
				t.Errorf("%s: the upstream received %s", more, r.up.Last(t).Body)
			}
		}
	}
}

// Completions and embeddings take the same way, with the model's name replaced.
func TestOtherEndpointsPassThrough(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	answer := func(model string) string {
		return `{"object":"list", "data":[{"embedding":[0.10,1e-3]}],"model":"` + model + `"}`
	}
	r.serve(t, "e", upstream.JSON(answer(up("e"))))
	for _, path := range []string{"/v1/completions", "/v1/embeddings"} {
		const request = `{"input":["a","b"],"prompt":"once","model":%q,"dimensions":3}`
		a := r.Do(t, http.MethodPost, path, fmt.Sprintf(request, "e"))
		if a.Status != 200 || a.Body != answer("e") {
			t.Errorf("%s: status %d, body %s", path, a.Status, a.Body)
		}
		got := r.up.Last(t)
		if got.Target != path || string(got.Body) != fmt.Sprintf(request, "up-e") {
			t.Errorf("%s: the upstream received %s", path, got.Bytes())
		}
	}
	event := func(model string) string {
		return `data: {"choices":[{"finish_reason":"length","index":0,"text":" upon"}],"model":"` + model + `","object":"text_completion"}` + "\n\n"
	}
	r.serve(t, "c", upstream.Events(event(up("c")), upstream.Done))
	a := r.Do(t, http.MethodPost, "/v1/completions", `{"prompt":"once","model":"c","stream":true}`)
	if want := event("c") + upstream.Done; a.Status != 200 || a.Body != want {
		t.Errorf("streamed completion: status %d, %q; want %q", a.Status, a.Body, want)
	}
}
