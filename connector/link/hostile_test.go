package link

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
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
	} {
		t.Run(name, func(t *testing.T) {
			a, err := readAnswerFrom("POST", stream)
			if err == nil {
				_, err = io.Copy(io.Discard, a.Body)
			}
			wantError(t, err, ErrMalformed)
			if most := (maxInformational + 1) * maxHead; stream.read > most {
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
	for size, ok := range map[int]bool{maxHead / 2: true, 2 * maxHead: false} {
		_, err := readAnswer("POST", "HTTP/1.1 200 OK\r\nA: "+strings.Repeat("b", size)+"\r\nContent-Length: 0\r\n\r\n")
		if ok != (err == nil) || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("a field of %d bytes: %v", size, err)
		}
	}
}

// newHostilePair returns the gateway's end of a tunnel whose connector is an
// HTTP/2 server with a mind of its own.
func newHostilePair(t *testing.T, h http.Handler) Conn {
	t.Helper()
	cert, pin := newTestIdentity(t)
	gatewayEnd, connectorEnd := tcpPipe(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() {
		conn := tls.Client(connectorEnd, ConnectorTLS(pin))
		if conn.HandshakeContext(t.Context()) != nil {
			return
		}
		(&http2.Server{}).ServeConn(conn, &http2.ServeConnOpts{Handler: h})
	}()
	gateway, err := HTTP2Gateway(context.Background(), ctx, gatewayEnd, GatewayTLS(cert))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = gateway.Close(CloseNone, "")
		_ = connectorEnd.Close()
	})
	return gateway
}

// TestHTTP2FieldLimits: what a connector puts around an answer is small, or the
// request fails, and the
// tunnel with it where HTTP/2 says so.
func TestHTTP2FieldLimits(t *testing.T) {
	large := strings.Repeat("x", 8*fieldBytes)
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	for name, hostile := range map[string]http.HandlerFunc{
		"header": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("A", large)
			_, _ = io.WriteString(w, answer)
		},
		"trailer": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
			w.Header().Set(http2.TrailerPrefix+"A", large)
		},
		"informational": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", large[:fieldBytes/4]) // small enough for the answer itself
			for range 40 {
				w.WriteHeader(http.StatusEarlyHints)
			}
			_, _ = io.WriteString(w, answer)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pair{gateway: newHostilePair(t, hostile)}
			if a, _, err := p.do(t, post("{}")); err == nil {
				t.Fatalf("it was taken: %v", a.Status)
			}
		})
	}
	// What a connector may say is taken.
	p := &pair{gateway: newHostilePair(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))}
	p.mustDo(t, post("{}"))
}
