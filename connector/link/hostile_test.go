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

// TestAnswerHeadLimits: a head over a limit is refused also when it is complete.
func TestAnswerHeadLimits(t *testing.T) {
	const start, end = "HTTP/1.1 200 OK\r\nA: ", "\r\nContent-Length: 0\r\n\r\n"
	for size, ok := range map[int]bool{maxHead / 2: true, maxHead: true, maxHead + 1: false, 2 * maxHead: false} {
		_, err := readAnswer("POST", start+strings.Repeat("b", size-len(start)-len(end))+end)
		if ok != (err == nil) || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("a head of %d bytes: %v", size, err)
		}
	}
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

// TestEndlessAnswerOverATunnel: the connector cannot go on with it, and other requests on the tunnel do not notice.
func TestEndlessAnswerOverATunnel(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		written := make(chan error, 1)
		p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Hostile") == "" {
				_, _ = io.WriteString(w, "hi")
				return
			}
			stream := w.(*response).stream
			_, err := io.WriteString(stream, chunked+"2\r\nhi\r\n0\r\n")
			for err == nil {
				_, err = io.WriteString(stream, "A: "+strings.Repeat("a", 8<<10)+"\r\n")
			}
			written <- err
		}))
		r := post("{}")
		r.Header.Set("Hostile", "yes")
		if _, _, err := p.do(t, r); err == nil {
			t.Error("it was taken")
		}
		wait.For(t, written, "the end of writing")
		if _, body := p.mustDo(t, post("{}")); body != "hi" {
			t.Errorf("another request: %q", body)
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
