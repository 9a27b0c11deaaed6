package caddymodule

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnswerPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := httptest.NewRecorder()
		a := newAnswer(rec)
		a.keepAlive(10*time.Second, []byte(": ping\n\n"))
		time.Sleep(9 * time.Second)
		if a.committed() {
			t.Fatal("committed before the interval was over")
		}
		time.Sleep(12 * time.Second) // 21 s: two pings
		if err := a.event([]byte("data: 1\n\n")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second) // 30 s: the timer fires, but 9 s of silence are too few
		if err := a.event([]byte("data: 2\n\n")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		a.end()
		time.Sleep(time.Minute)
		want := strings.Repeat(": ping\n\n", 2) + "data: 1\n\ndata: 2\n\n: ping\n\n"
		if got := rec.Body.String(); got != want {
			t.Errorf("stream is %q, want %q", got, want)
		}
		if got := rec.Header().Get("Content-Type"); rec.Code != 200 || got != "text/event-stream" {
			t.Errorf("status %d, type %q", rec.Code, got)
		}
	})
}

func TestAnswerWithoutPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAnswer(httptest.NewRecorder())
		a.keepAlive(-1, []byte(": ping\n\n"))
		time.Sleep(time.Hour)
		if a.committed() {
			t.Error("a ping was sent although pings are off")
		}
	})
}

// failingWriter fails every write, as one whose client is gone.
type failingWriter struct{ http.ResponseWriter }

var errGone = errors.New("client gone")

func (failingWriter) Write([]byte) (int, error) { return 0, errGone }

func TestAnswerKeepsFirstError(t *testing.T) {
	a := newAnswer(failingWriter{httptest.NewRecorder()})
	if err := a.event([]byte("x")); !errors.Is(err, errGone) {
		t.Errorf("error %v, want %v", err, errGone)
	}
	if err := a.event(nil); !errors.Is(err, errGone) {
		t.Errorf("second error %v, want %v", err, errGone)
	}
}

func TestAnswerWhole(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 100_000)
	rec := httptest.NewRecorder()
	if err := newAnswer(rec).whole(http.StatusTeapot, body); err != nil {
		t.Fatal(err)
	}
	if rec.Code != http.StatusTeapot || !bytes.Equal(rec.Body.Bytes(), body) || rec.Header().Get("Content-Length") != "1000000" {
		t.Errorf("status %d, %d bytes, header %v", rec.Code, rec.Body.Len(), rec.Header())
	}
}

// A handler that returned would end the answer of HTTP/3 as if it were whole.
func TestDialectAbortsCutAnswer(t *testing.T) {
	serve := func(w http.ResponseWriter, major int) (panicked any) {
		defer func() { panicked = recover() }()
		r := httptest.NewRequest(http.MethodGet, "/v1/unknown", nil)
		r.ProtoMajor = major
		r = r.WithContext(newExchange().inContext(r.Context()))
		if err := new(Dialect).ServeHTTP(w, r, nil); err != nil {
			t.Error(err)
		}
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
