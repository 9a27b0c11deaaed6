package serve

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
)

// testStream is a stream of lines that name the method which has written them.
type testStream struct {
	opening string
	done    bool
	err     *dialect.Error
}

func (s *testStream) Feed(p []byte) []byte       { return p }
func (s *testStream) Done() bool                 { return s.done }
func (s *testStream) Finished() bool             { return s.done }
func (s *testStream) Err() *dialect.Error        { return s.err }
func (*testStream) Buffered() int64              { return 0 }
func (*testStream) Usage() (dialect.Usage, bool) { return dialect.Usage{PromptTokens: 1}, true }

func (s *testStream) Ping() []byte {
	opening := s.opening
	s.opening = ""
	return []byte(cmp.Or(opening, "ping\n"))
}

func (s *testStream) End(cause *dialect.Error) []byte {
	s.done, s.err = true, cause
	if cause != nil {
		return []byte("error: " + cause.Message + "\n")
	}
	return []byte("end\n")
}

func TestAnswerPings(t *testing.T) {
	for opening, begins := range map[string]string{"": "ping\n", "begin\n": "begin\n"} {
		synctest.Test(t, func(t *testing.T) {
			rec := httptest.NewRecorder()
			a := &answer{w: rec}
			a.open(&testStream{opening: opening}, 10*time.Second)
			time.Sleep(9 * time.Second)
			if a.committed() {
				t.Fatal("committed before the interval was over")
			}
			time.Sleep(12 * time.Second) // 21 s: two pings, or the opening and one
			feed(t, a, "1\n")
			time.Sleep(9 * time.Second) // 30 s: the timer fires, but 9 s of silence are too few
			feed(t, a, "2\n")
			time.Sleep(11 * time.Second)
			if err := a.endStream(nil); err != nil {
				t.Error(err)
			}
			a.end(dialect.Chat)
			time.Sleep(time.Minute)
			want := begins + "ping\n1\n2\nping\nend\n"
			if got := rec.Body.String(); got != want {
				t.Errorf("stream is %q, want %q", got, want)
			}
			if got := rec.Header().Get("Content-Type"); rec.Code != 200 || got != "text/event-stream" {
				t.Errorf("status %d, type %q", rec.Code, got)
			}
		})
	}
}

// feed passes bytes of a stream to the answer.
func feed(t *testing.T, a *answer, p string) {
	t.Helper()
	if at, err := a.feed([]byte(p)); err != nil || at.gone {
		t.Errorf("feeding %q: %+v, %v", p, at, err)
	}
}

func TestAnswerWithoutPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answer{w: httptest.NewRecorder()}
		a.open(&testStream{}, -1)
		time.Sleep(time.Hour)
		if a.committed() {
			t.Error("a ping was sent although pings are off")
		}
	})
}

// failingWriter fails every write, as after the client has disconnected.
type failingWriter struct{ http.ResponseWriter }

var errGone = errors.New("client gone")

func (failingWriter) Write([]byte) (int, error) { return 0, errGone }

func TestAnswerTellsThatTheClientIsGone(t *testing.T) {
	a := &answer{w: failingWriter{httptest.NewRecorder()}}
	a.open(&testStream{}, -1)
	for range 2 {
		if at, err := a.feed([]byte("x")); !at.gone || err != nil {
			t.Errorf("progress %+v, %v", at, err)
		}
	}
	if !errors.Is(a.err, errGone) {
		t.Errorf("error %v", a.err)
	}
}

// If the handler returned, HTTP/3 would end the answer as if it were whole.
func TestCutAnswerAborts(t *testing.T) {
	g := newGateway(t, 64<<20)
	serve := func(w http.ResponseWriter, major int) (panicked any) {
		defer func() { panicked = recover() }()
		r := httptest.NewRequest(http.MethodGet, "/v1/unknown", nil)
		r.ProtoMajor = major
		g.send(w, r)
		return nil
	}
	if v := serve(failingWriter{httptest.NewRecorder()}, 3); v != http.ErrAbortHandler {
		t.Errorf("HTTP/3, failed write: panics with %v, want http.ErrAbortHandler", v)
	}
	if v := serve(httptest.NewRecorder(), 3); v != nil {
		t.Errorf("HTTP/3, complete answer: panics with %v", v)
	}
	if v := serve(failingWriter{httptest.NewRecorder()}, 1); v != nil {
		t.Errorf("HTTP/1.1, failed write: panics with %v", v)
	}
}

// touchyStream lets the race detector find concurrent calls.
type touchyStream struct {
	testStream
	uses int
}

func (s *touchyStream) Ping() []byte         { s.uses++; return []byte("ping\n") }
func (s *touchyStream) Feed(p []byte) []byte { s.uses++; return p }

// Events and pings never use the stream, or write, concurrently.
func TestAnswerTouchesTheStreamFromOneGoroutineAtATime(t *testing.T) {
	rec := httptest.NewRecorder()
	a := &answer{w: rec}
	s := &touchyStream{}
	a.open(s, time.Microsecond)
	for range 500 {
		feed(t, a, "event\n")
		time.Sleep(20 * time.Microsecond)
	}
	a.end(dialect.Chat)
	lines := strings.SplitAfter(rec.Body.String(), "\n")
	events := 0
	for _, line := range lines {
		if line == "event\n" {
			events++
		} else if line != "ping\n" && line != "" {
			t.Errorf("line %q", line)
		}
	}
	if pings := len(lines) - 1 - events; events != 500 || pings == 0 || s.uses != events+pings {
		t.Errorf("%d events and %d pings in %d uses", events, pings, s.uses)
	}
}

// A request that ends while it is read gets no answer, unless the gateway has ended it.
func TestRequestEndsWhileItIsRead(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cause  error
		status int
		empty  bool
	}{
		{"the client is gone", nil, activity.StatusClientGone, true},
		{"the key is revoked", dialect.EndedKey("revoked"), 401, false},
		{"the store is lost", dialect.StoreLostDuring(), 503, false},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(tt.cause)
		w := httptest.NewRecorder()
		c := clientRequest{ctx: ctx, modelRequest: modelRequest{answer: &answer{w: w}}}
		c.answer.fail(dialect.Chat, "req_1", c.orEnded(dialect.Internal("unsent")))
		if w.Code != tt.status || (w.Body.Len() == 0) != tt.empty {
			t.Errorf("%s: %d %s", tt.name, w.Code, w.Body)
		}
	}
}
