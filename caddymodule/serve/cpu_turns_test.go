package serve

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// Keys take turns in decoding large requests and counting their prompts, so one key cannot use
// all processors. Small requests do not wait. A stream waits at most a second for a count.
func TestLargeRequestsTakeTurns(t *testing.T) {
	g := newGateway(t, 1<<30)
	const count, create = "/v1/messages/count_tokens", "/v1/messages"
	request := func(words int) string {
		return strings.Replace(requests[create], "TEXT", strings.Repeat("some words ", words), 1)
	}
	small, large, larger := request(1), request(4000), request(20000)
	leave := g.takeAll(t)
	g.expectAtOnce(t, "a small prompt", count, small)
	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("text/event-stream",
			io.MultiReader(strings.NewReader(
				`data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")), -1)
	}
	if w := g.post(create, strings.Replace(large, "false", "true", 1)); w.Code != http.StatusOK ||
		!strings.Contains(w.Body.String(), `"input_tokens":11`) {
		t.Errorf("a stream: status %d, %s", w.Code, w.Body)
	}
	g.expectTurn(t, "a large prompt", leave, func() int { return g.post(count, large).Code })

	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
	}
	leave = g.takeAll(t)
	g.expectAtOnce(t, "a request", create, large)
	g.expectTurn(t, "a larger request", leave, func() int { return g.post(create, larger).Code })
	leave = g.takeAll(t)
	g.expectTurn(t, "a compressed request", leave, func() int {
		r := httptest.NewRequest(http.MethodPost, create, bytes.NewReader(gzipped(t, []byte(small))))
		r.Header.Set("Content-Encoding", "gzip")
		w := httptest.NewRecorder()
		g.send(w, r)
		return w.Code
	})
	g.returned(t)
}

// Kept responses that a request refers to wait for turns as a body of their size.
func TestReferencesTakeTurns(t *testing.T) {
	g := newGateway(t, 1<<30)
	g.answer = func(*http.Request) *http.Response {
		return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
	}
	owner := kept.Owner{Account: store.DefaultAccount, Key: g.key.ID()}
	view := g.backend.completions.kept.View(owner, owner.Account, g.key.Scope())
	for id, size := range map[string]int{"small": decodedAtOnce / 2, "large": 8 * decodedAtOnce} {
		item := []byte(`{"id":"msg_` + id + `","type":"message","role":"user","content":"` + strings.Repeat("x", size) + `"}`)
		view.Keep("resp_"+id, kept.Response{Model: "m", Body: []byte("{}"), Input: [][]byte{item}})
	}
	const path = "/v1/responses"
	small := `{"model":"m","store":false,"previous_response_id":"resp_small","input":"x"}`
	for _, large := range []string{
		`{"model":"m","store":false,"previous_response_id":"resp_large","input":"x"}`,
		`{"model":"m","store":false,"input":[{"type":"item_reference","id":"msg_large"}]}`,
	} {
		leave := g.takeAll(t)
		g.expectAtOnce(t, "a small reference", path, small)
		g.expectTurn(t, "a large reference", leave, func() int { return g.post(path, large).Code })
	}
	g.returned(t)
}

// A whole answer to a request for a stream waits for its turn, as others do.
func TestReplaysTakeTurns(t *testing.T) {
	g := newGateway(t, 1<<30)
	const path = "/v1/chat/completions"
	send := func(size int) func() int {
		g.answer = func(*http.Request) *http.Response {
			return upstreamAnswer("application/json", strings.NewReader(completionOf(strings.Repeat("x", size))), -1)
		}
		return func() int { return g.post(path, strings.Replace(requests[path], "false", "true", 1)).Code }
	}
	leave := g.takeAll(t)
	if status := send(decodedAtOnce / 2)(); status != http.StatusOK {
		t.Errorf("a small answer: status %d", status)
	}
	g.expectTurn(t, "a large answer", leave, send(2*decodedAtOnce))
	g.returned(t)
}

// A prompt that is counted during the turn of its answer does not wait for another turn.
func TestCountsNeedNoSecondTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, 1<<30)
		answer := strings.Replace(completionOf(strings.Repeat("x", 2*decodedAtOnce)), `"usage"`, `"usages"`, 1)
		g.answer = func(*http.Request) *http.Response {
			return upstreamAnswer("application/json", strings.NewReader(answer), -1)
		}
		for range max(runtime.GOMAXPROCS(0)/2, 1) - 1 { // all turns but one
			if _, err := g.backend.cpu.Enter(t.Context(), fair.Client{Key: "other"}, 1, time.Minute); err != nil {
				t.Fatal(err)
			}
			defer g.backend.cpu.Leave()
		}
		const create = "/v1/messages"
		begun := time.Now()
		w := g.post(create, strings.Replace(requests[create], "TEXT", strings.Repeat("some words ", 4000), 1))
		if took := time.Since(begun); w.Code != http.StatusOK || took > 0 {
			t.Errorf("status %d after %v", w.Code, took)
		}
		if !strings.Contains(w.Body.String(), `"input_tokens":8`) { // not a quarter of the bytes
			t.Errorf("the prompt was not counted: %.300s", w.Body)
		}
	})
}

// Answers that wait for their turns hold only their own bytes: the memory for the translation is needed in the turn.
func TestAnswersWaitInLittleMemory(t *testing.T) {
	const size, answers = 256 << 10, 64
	body := completionOf(strings.Repeat("x", size))
	for name, length := range map[string]int64{"known size": int64(len(body)), "unknown size": -1} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, 5*answers*size) // the key's share is a half
			g.answer = func(*http.Request) *http.Response {
				return upstreamAnswer("application/json", strings.NewReader(body), length)
			}
			leave := g.takeAll(t)
			var all sync.WaitGroup
			for range answers {
				all.Go(func() { g.expectAtOnce(t, "an answer", "/v1/responses", requests["/v1/responses"]) })
			}
			wait.Until(t, "all answers wait", func() bool { return g.backend.cpu.Waiting() == answers })
			leave()
			all.Wait()
			g.returned(t)
		})
	}
}

// stalled is a client that reads its answer only after release.
type stalled struct {
	*httptest.ResponseRecorder
	release chan struct{}
}

func (s *stalled) Write(p []byte) (int, error) {
	<-s.release
	return s.ResponseRecorder.Write(p)
}

// A client that does not read its answer has no turn meanwhile.
func TestSlowClientsKeepNoTurn(t *testing.T) {
	const path = "/v1/chat/completions"
	body := completionOf(strings.Repeat("x", 2*decodedAtOnce))
	for name, c := range map[string]struct {
		request string
		answer  io.Reader
	}{
		"whole":    {requests[path], strings.NewReader(body)},
		"replayed": {strings.Replace(requests[path], "false", "true", 1), strings.NewReader(body)},
		"broken":   {requests[path], io.MultiReader(strings.NewReader(body), iotest.ErrReader(io.ErrUnexpectedEOF))},
		"invalid":  {requests[path], strings.NewReader(body[:len(body)-1])},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(t, 1<<30)
				g.answer = func(*http.Request) *http.Response { return upstreamAnswer("application/json", c.answer, -1) }
				w := &stalled{httptest.NewRecorder(), make(chan struct{})}
				go g.send(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(c.request)))
				defer synctest.Wait()
				defer close(w.release)
				synctest.Wait()
				g.takeAll(t)()
			})
		})
	}
}

// takeAll takes all permits for long work. The function returned leaves them.
func (g *testGateway) takeAll(t *testing.T) (leave func()) {
	t.Helper()
	n := max(runtime.GOMAXPROCS(0)/2, 1)
	for range n {
		if _, err := g.backend.cpu.Enter(t.Context(), fair.Client{Key: "other"}, 1, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for range n {
			g.backend.cpu.Leave()
		}
	}
}

// expectAtOnce expects that a request does not wait for a turn.
func (g *testGateway) expectAtOnce(t *testing.T, what, path, body string) {
	t.Helper()
	if w := g.post(path, body); w.Code != http.StatusOK {
		t.Errorf("%s: status %d, %s", what, w.Code, w.Body)
	}
}

// expectTurn expects that a request is answered only after leave has been called.
func (g *testGateway) expectTurn(t *testing.T, what string, leave func(), send func() int) {
	t.Helper()
	answered := make(chan int, 1)
	go func() { answered <- send() }()
	for waits := 0; waits == 0; time.Sleep(time.Millisecond) {
		waits = int(g.backend.cpu.Waiting())
		select {
		case status := <-answered:
			t.Fatalf("%s is served before its turn: status %d", what, status)
		default:
		}
	}
	leave()
	if status := <-answered; status != http.StatusOK {
		t.Errorf("%s: status %d", what, status)
	}
}
