package link

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/rig/wait"
)

// endless is a stream that says the same for ever, and counts how often.
type endless struct {
	start, again string
	read         int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.start)
	e.start = e.start[n:]
	for n < len(p) {
		i := (e.read + n) % len(e.again)
		n += copy(p[n:], e.again[i:])
	}
	e.read += n
	return n, nil
}

// TestEndlessAnswers: what comes before the body of an answer, and behind it, has
// an end, and no more is read than it takes to see that there is none.
func TestEndlessAnswers(t *testing.T) {
	for name, stream := range map[string]*endless{
		"status line":   {start: "HTTP/1.1 200 ", again: "O"},
		"one field":     {start: "HTTP/1.1 200 OK\r\nA: ", again: "b"},
		"fields":        {start: "HTTP/1.1 200 OK\r\n", again: "A: b\r\n"},
		"informational": {again: "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"},
		"large informational": {
			again: "HTTP/1.1 103 Early Hints\r\nLink: " + strings.Repeat("x", maxHead/2) + "\r\n\r\n",
		},
		"chunk size":      {start: chunked, again: "0"},
		"chunk extension": {start: chunked + "3;", again: "a"},
		"trailer":         {start: chunked + "0\r\n", again: "A: b\r\n"},
		"chunks":          {start: chunked, again: "1;" + strings.Repeat("a", 2000) + "\r\na\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := readAnswerFrom("POST", stream)
			if err == nil {
				_, err = io.Copy(io.Discard, a.Body)
			}
			wantError(t, err, ErrMalformed)
			if most := (MaxInformational + 1) * maxHead; stream.read > most {
				t.Errorf("%d bytes were read", stream.read)
			}
			if name != "large informational" && stream.read > 2*maxHead {
				t.Errorf("%d bytes were read", stream.read)
			}
		})
	}
}

// TestAnswerHeadLimit: a head over the limit is refused also when it is complete.
func TestAnswerHeadLimit(t *testing.T) {
	const start, end = "HTTP/1.1 200 OK\r\nA: ", "\r\nContent-Length: 0\r\n\r\n"
	for size, ok := range map[int]bool{maxHead / 2: true, maxHead: true, maxHead + 1: false, 2 * maxHead: false} {
		_, err := readAnswer("POST", start+strings.Repeat("b", size-len(start)-len(end))+end)
		if ok != (err == nil) || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("a head of %d bytes: %v", size, err)
		}
	}
}

// TestAnswerFieldLimit: a head of many small fields is refused before memory is
// allocated for them.
func TestAnswerFieldLimit(t *testing.T) {
	for n, ok := range map[int]bool{MaxFields: true, MaxFields + 1: false, 10_000: false} {
		_, err := readAnswer("POST", "HTTP/1.1 200 OK\r\n"+strings.Repeat("A: b\r\n", n-1)+"Content-Length: 0\r\n\r\n")
		if ok != (err == nil) || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%d fields: %v", n, err)
		}
	}
}

// TestHeadMemory: line feeds and fields in the head of an answer take no more memory than
// other bytes.
func TestHeadMemory(t *testing.T) {
	const size = 60 << 10
	for name, head := range map[string]string{
		"line feeds": "A: " + strings.Repeat("\n", size) + "\r\n",
		"CRLFs":      "A: b\r\n" + strings.Repeat("\r\nA", size/3),
		"fields":     strings.Repeat("A:\r\n", size/4),
	} {
		answer := "HTTP/1.1 200 OK\r\n" + head + "\r\n"
		const times = 10
		before := allocated()
		for range times {
			if _, err := readAnswer("POST", answer); !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
		}
		if got := (allocated() - before) / times; got > 8*size {
			t.Errorf("%s: %d bytes for a head of %d", name, got, size)
		}
	}
}

// raw is a handler that writes to the stream by itself: start once, and again
// without end, unless it is empty. It returns after read is closed: its caller
// would add an answer of its own.
func raw(start, again string, written chan<- error, read <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stream := w.(*response).stream
		_, err := io.WriteString(stream, start)
		for err == nil && again != "" {
			_, err = io.WriteString(stream, again)
		}
		written <- err
		if err == nil {
			_ = stream.Close()
			<-read
		}
	})
}

// TestAnswerLimits: over a tunnel, what comes before the body of an answer, and
// behind it, is bounded. The connector cannot go on with it, and other requests
// on the tunnel do not notice.
func TestAnswerLimits(t *testing.T) {
	field := "A: " + strings.Repeat("a", 8<<10) + "\r\n"
	const plain = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
	overBoth(t, func(t *testing.T, newPair pairing) {
		for name, test := range map[string]struct {
			start, again string
			taken        bool
		}{
			"large header": {
				start: "HTTP/1.1 200 OK\r\n" + strings.Repeat(field, 7) + "Content-Length: 2\r\n\r\nhi",
				taken: true,
			},
			"too large header":      {start: "HTTP/1.1 200 OK\r\n" + strings.Repeat(field, 8) + "Content-Length: 2\r\n\r\nhi"},
			"endless header":        {start: "HTTP/1.1 200 OK\r\n", again: field},
			"endless field":         {start: "HTTP/1.1 200 OK\r\nA: ", again: strings.Repeat("a", 8<<10)},
			"informational":         {start: strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 3) + plain, taken: true},
			"endless informational": {again: "HTTP/1.1 103 Early Hints\r\n" + field + "\r\n"},
			"other trailer":         {start: chunked + "2\r\nhi\r\n0\r\nA: b\r\n\r\n", taken: true},
			"endless trailer":       {start: chunked + "2\r\nhi\r\n0\r\n", again: field},
			"endless size":          {start: chunked, again: strings.Repeat("0", 8<<10)},
			"endless extension":     {start: chunked + "2;", again: strings.Repeat("a", 8<<10)},
		} {
			t.Run(name, func(t *testing.T) {
				written := make(chan error, 2)
				read := make(chan struct{})
				hostile := raw(test.start, test.again, written, read)
				p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/v1/hostile" {
						hostile.ServeHTTP(w, r)
						return
					}
					_, _ = io.WriteString(w, "hi")
				}))
				r := post("{}")
				r.URL.Path = "/v1/hostile"
				_, body, err := p.do(t, r)
				close(read)
				if test.taken != (err == nil) || test.taken && body != "hi" {
					t.Errorf("body %q, %v", body, err)
				}
				err = wait.For(t, written, "the end of writing")
				if endless := test.again != ""; endless && err == nil || test.taken && err != nil {
					t.Errorf("writing it ended with %v", err)
				}
				if _, body := p.mustDo(t, post("{}")); body != "hi" {
					t.Errorf("another request: %q", body)
				}
			})
		}
	})
}

// TestRequestLimits: the same for a gateway's requests, at the connector.
func TestRequestLimits(t *testing.T) {
	field := "A: " + strings.Repeat("a", 8<<10) + "\r\n"
	overBoth(t, func(t *testing.T, newPair pairing) {
		p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, "hi")
		}))
		for name, test := range map[string][2]string{
			"header": {"POST /v1/x HTTP/1.1\r\nHost: a\r\n", field},
			"target": {"POST /", strings.Repeat("a", 8<<10)},
			"fields": {"POST /v1/x HTTP/1.1\r\nHost: a\r\n", "A: b\r\n"},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			stream, err := p.gateway.OpenStreamSync(ctx)
			if err != nil {
				t.Fatal(err)
			}
			refused := make(chan error, 1)
			go func() {
				answer, err := io.ReadAll(stream)
				if err == nil && strings.Contains(string(answer), "\r\nPostern-Error: internal\r\n") {
					err = ErrInternal
				}
				refused <- err
				stopReading(stream, CodeNone)
				stream.CancelWrite(CodeCancelled.wire())
			}()
			_, err = io.WriteString(stream, test[0])
			for err == nil && ctx.Err() == nil {
				_, err = io.WriteString(stream, test[1])
			}
			if err == nil {
				t.Errorf("%s: it is still taken", name)
			}
			if err := <-refused; err == nil {
				t.Errorf("%s: it was answered", name)
			}
			cancel()
			if err := <-p.served; err == nil {
				t.Errorf("%s: it was served", name)
			}
			if _, body := p.mustDo(t, post("{}")); body != "hi" {
				t.Errorf("another request: %q", body)
			}
			<-p.served
		}
	})
}
