package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/postern-dev/postern/connector/link"
)

func readAnswer(method string, in io.Reader) (header http.Header, body []byte, err error) {
	a, body, err := exchanged(method, scriptedConn{Reader: in}, 0)
	if a != nil {
		header = a.Header
	}
	return header, body, err
}

// silence is a connection on which nothing arrives.
type silence struct{}

const (
	okay    = "HTTP/1.1 200 OK\r\n"
	chunked = okay + "Transfer-Encoding: chunked\r\n\r\n"
)

func TestAnswers(t *testing.T) {
	for _, test := range []struct{ name, method, answer, body string }{
		{"length", "POST", okay + "Content-Length: 3\r\n\r\nabc", "abc"},
		{"empty", "POST", okay + "Content-Length: 0\r\n\r\n", ""},
		{"chunks", "POST", chunked + "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", "abcd"},
		{"extensions", "POST", chunked + "3;a=b;c=\"d\"\r\nabc\r\n1;\r\nd\r\n0;e\r\n\r\n", "abcd"},
		{"padded sizes", "POST", chunked + "3  \r\nabc\r\n0 \r\n\r\n", "abc"},
		{"trailer", "POST", chunked + "3\r\nabc\r\n0\r\nA: b\r\nC: d\r\n\r\n", "abc"},
		{
			"stream that says its end", "POST",
			"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\ndata: [DONE]\n\n",
			"data: 1\n\ndata: [DONE]\n\n",
		},
		{"says close", "POST", okay + "Connection: Close\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"says close among others", "POST", okay + "Connection: keep-alive, close\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"old", "POST", "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"old, to the end", "POST", "HTTP/1.0 200 OK\r\n\r\nabc", "abc"},
		{"to the end", "POST", okay + "Connection: close\r\n\r\nabc", "abc"},
		{"to the end, not announced", "POST", okay + "\r\nabc", "abc"},
		// The gateway parses it, and notices a cut.
		{"JSON, to the end", "POST", okay + "Content-Type: application/json\r\n\r\n{}", "{}"},
		{"more than asked for", "POST", okay + "Content-Length: 3\r\n\r\nabcHTTP/1.1 408 Timeout\r\n", "abc"},
		{"head, length", "HEAD", okay + "Content-Length: 3\r\n\r\n", ""},
		{"head, chunked", "HEAD", chunked, ""},
		{"head of JSON", "HEAD", okay + "Content-Type: application/json\r\n\r\n", ""},
		{"no content", "POST", "HTTP/1.1 204 No Content\r\n\r\n", ""},
		{"not modified", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", ""},
		{"no content, yet some", "POST", "HTTP/1.1 204 No Content\r\n\r\nabc", ""},
		{"informational", "POST", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nA: b\r\n\r\n" + okay +
			"Content-Length: 3\r\n\r\nabc", "abc"},
		{"LF alone", "POST", "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc", "abc"},
		{"LF among CRLF", "POST", okay + "A: b\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"a space after a name", "POST", okay + "A : b\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"a folded line", "POST", okay + "B: b\r\n c\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		{"equal lengths", "POST", okay + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "abc"},
		{
			"length and chunks", "POST",
			okay + "Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "abc",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			end := io.Reader(silence{})
			if strings.HasSuffix(test.name, "to the end") || strings.HasSuffix(test.name, "not announced") ||
				strings.HasSuffix(test.name, "says its end") {
				end = strings.NewReader("")
			}
			header, body, err := readAnswer(test.method, io.MultiReader(strings.NewReader(test.answer), end))
			if string(body) != test.body || err != nil || header.Get("A") != "" && test.name != "LF among CRLF" {
				t.Errorf("body %q, header %v, %v", body, header, err)
			}
			for _, in := range []io.Reader{
				iotest.OneByteReader(strings.NewReader(test.answer)),
				iotest.DataErrReader(strings.NewReader(test.answer)),
			} {
				if _, body, err := readAnswer(test.method, in); string(body) != test.body || err != nil {
					t.Errorf("in pieces: body %q, %v", body, err)
				}
			}
		})
	}
}

func TestMalformedAnswers(t *testing.T) {
	for _, answer := range []string{
		"HTTP/2 200\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "HTTP/0.9 200 OK\r\n\r\n", "ICY 200 OK\r\n\r\n", "<html>\r\n\r\n",
		"SSH-2.0-x\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
		okay + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
		okay + "Content-Length: 3, 3\r\n\r\nabc",
		okay + "Content-Length: +3\r\n\r\nabc",
		okay + "Transfer-Encoding: gzip\r\n\r\nabc",
		okay + "Transfer-Encoding: events, chunked\r\n\r\n0\r\n\r\n",
		okay + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
		okay + "A\r\nContent-Length: 0\r\n\r\n",
		chunked + "3\r\nabcd\r\n0\r\n\r\n",
		chunked + "x\r\nabc\r\n0\r\n\r\n", chunked + "-1\r\n", chunked + "0x3\r\nabc\r\n0\r\n\r\n", chunked + "\r\n",
		chunked + "fffffffffffffffff\r\nabc",
		chunked + "3\nabc\n0\n\n", chunked + "3;a\nabc\r\n0\r\n\r\n", chunked + "3;a\rb\r\nabc\r\n0\r\n\r\n",
		chunked + "3 a\r\nabc\r\n0\r\n\r\n", chunked + " 3\r\nabc\r\n0\r\n\r\n",
		chunked + "3;" + strings.Repeat("a", 8<<10) + "\r\nabc\r\n0\r\n\r\n",
		chunked + "0\r\nA\r\n\r\n",
		chunked + "0\r\nA: " + strings.Repeat("a", 8<<10) + "\r\n\r\n",
		okay + "A: " + strings.Repeat("a", 2*link.MaxAnswerHead) + "\r\nContent-Length: 0\r\n\r\n",
		okay + strings.Repeat("A: b\r\n", link.MaxFields+1) + "\r\n",
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", link.MaxInformational+1),
	} {
		for _, in := range []io.Reader{strings.NewReader(answer), iotest.OneByteReader(strings.NewReader(answer))} {
			if _, _, err := readAnswer("POST", io.MultiReader(in, silence{})); !errors.Is(err, link.ErrMalformed) {
				t.Errorf("%.200q: %v", answer, err)
			}
		}
	}
}

// An incomplete answer is not malformed. Events do not end with the connection: a server that dies would look like one
// that has finished, unless the stream has announced its end.
func TestCutAnswers(t *testing.T) {
	for _, answer := range []string{
		"", "HTTP/1.1", okay, okay + "A: b\r\n",
		okay + "Content-Length: 3\r\n\r\nab",
		chunked + "3\r\nabc", chunked + "3\r\nabc\r\n", chunked + "3\r\nabc\r\n0\r\n", chunked + "3\r\nab",
		chunked + "7fffffffffffffff\r\nabc",
		okay + "Content-Type: text/event-stream\r\n\r\ndata: 1\n\n",
		"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\ndata: [DONE",
	} {
		for _, in := range []io.Reader{strings.NewReader(answer), iotest.OneByteReader(strings.NewReader(answer))} {
			if _, _, err := readAnswer("POST", in); err != io.ErrUnexpectedEOF {
				t.Errorf("%q: %v", answer, err)
			}
		}
	}
}

// The bytes of an answer may be secret. The log names only the fault, and net/http logs
// nothing.
func TestAnswersAreNotLogged(t *testing.T) {
	var text bytes.Buffer
	defer log.SetOutput(log.Writer())
	log.SetOutput(&text)
	for _, answer := range []string{
		"SECRET\r\n\r\n", "HTTP/1.1 SECRET\r\n\r\n", "SECRET/1.1 200 OK\r\n\r\n", okay + "SECRET\r\n\r\n",
		okay + "SECRET : x\r\n\r\n",
		okay + "Content-Length: SECRET\r\n\r\n", okay + "Content-Length: 1\r\nContent-Length: SECRET\r\n\r\n",
		okay + "Transfer-Encoding: SECRET\r\n\r\n",
		chunked + "SECRET\r\n", chunked + "1\r\naSECRET", chunked + "0\r\nSECRET\r\n\r\n",
		okay + "Content-Length: 2\r\n\r\nokSECRET", "HTTP/1.1 204 No Content\r\n\r\nSECRET",
	} {
		address, _ := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
			if takeRequest(in) {
				io.WriteString(conn, answer)
			}
		})
		p := NewProxy(Set{"box": newServer("box", baseURL(address), nil)},
			Options{Logger: slog.New(slog.NewTextHandler(&text, nil)), Prober: NewProber(quiet)})
		ask(t.Context(), p, "{}")
	}
	if strings.Contains(text.String(), "SECRET") || !strings.Contains(text.String(), "malformed HTTP response") {
		t.Errorf("the log:\n%s", &text)
	}
}

// Some versions of net/textproto do not quote a malformed line.
func TestHeaderLinesAreNotShown(t *testing.T) {
	x := &upstreamRequest{remaining: 1}
	if err := x.answerError(textproto.ProtocolError("malformed MIME header line: SECRET")); strings.Contains(err.Error(),
		"SECRET") {
		t.Error(err)
	}
}
