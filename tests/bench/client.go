//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"time"

	"github.com/postern-dev/postern/tests/upstream/play"
)

// The model's public name, which clients use, and its name at the upstream
// behind Postern. The upstream answers with whichever name it was asked for, so
// that a client must see the public one in every case.
const (
	publicModel = "bench"
	localModel  = "bench-local-8b"
)

// A target is where a system takes requests.
type target struct {
	Addr string // host:port
	Key  string // sent as bearer token; the systems without keys ignore it
}

// A task is a request and its right answer.
type task struct{ request, want []byte }

// whole and streamed return the task to play a script, with bytes of prompt before it.
func (t target) whole(s play.Script, padding int) task {
	return task{t.request(s, "", padding), s.AppendCompletion(nil, publicModel)}
}

func (t target) streamed(s play.Script, padding int) task {
	return task{t.request(s, `"stream":true,"stream_options":{"include_usage":true},`, padding), s.AppendStream(nil, publicModel)}
}

func (t target) request(s play.Script, more string, padding int) []byte {
	const filler = "Das ist ein längerer Prompt. "
	body := fmt.Sprintf(`{"model":"%s",%s"temperature":0.7,"max_tokens":512,"messages":[{"role":"system",`+
		`"content":"You are a helpful assistant. Answer in one short paragraph."},{"role":"user","content":"%s%s"}]}`,
		publicModel, more, bytes.Repeat([]byte(filler), padding/len(filler)), s)
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: application/json\r\n"+
		"Authorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", t.Addr, t.Key, len(body), body)
}

// smallAnswer is a whole answer of about 1 KB.
var smallAnswer = play.Script{Tokens: 1, Bulk: 720}

// A client sends requests on one connection, one after the other. It costs less
// than net/http: on few cores the generator's own work is in the way of what it
// measures.
type client struct {
	net.Conn
	r    *bufio.Reader
	body []byte
	at   int64 // when the last read returned, by the monotonic clock
}

func (c *client) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.at = play.Monotonic()
	return n, err
}

// dial connects to the target. The connection is useless after limit, so that
// nothing can hang.
func (t target) dial(limit time.Duration) (*client, error) {
	conn, err := net.DialTimeout("tcp", t.Addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(limit)) // an open socket has deadlines
	c := &client{Conn: conn}
	c.r = bufio.NewReaderSize(c, 16<<10)
	return c, nil
}

// do sends the task's request and compares the answer byte for byte.
func (c *client) do(t task) error {
	length, chunked, err := c.start(t.request)
	if err != nil {
		return err
	}
	if c.body, err = play.ReadBody(c.r, c.body[:0], length, chunked); err != nil {
		return fmt.Errorf("the answer was cut short: %w", err)
	}
	if bytes.Equal(c.body, t.want) {
		return nil
	}
	at := 0
	for at < min(len(c.body), len(t.want)) && c.body[at] == t.want[at] {
		at++
	}
	return fmt.Errorf("the answer has %d bytes instead of %d; from byte %d it is %.100q instead of %.100q",
		len(c.body), len(t.want), at, c.body[at:], t.want[at:])
}

// start sends a request and reads the head of its answer. Another status than 200
// is an error.
func (c *client) start(request []byte) (length int, chunked bool, err error) {
	if _, err := c.Write(request); err != nil {
		return 0, false, fmt.Errorf("sending a request: %w", err)
	}
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, false, fmt.Errorf("waiting for an answer: %w", err)
	}
	status := 0
	if fields := bytes.Fields(line); len(fields) > 1 {
		status, _ = strconv.Atoi(string(fields[1])) // what is no number is no 200 either
	}
	if length, chunked, err = play.ReadHeader(c.r); err != nil {
		return 0, false, fmt.Errorf("reading the head of an answer: %w", err)
	}
	if status != 200 {
		text, _ := play.ReadBody(c.r, nil, length, chunked) // as much as came
		return 0, false, fmt.Errorf("the answer has status %d: %.300s", status, text)
	}
	return length, chunked, nil
}

// stamps sends a request for a stream of stamped tokens, and returns how old each
// event was when its last byte arrived, in milliseconds. A stream without all of
// its events is an error.
func (c *client) stamps(request []byte, tokens int) ([]float64, error) {
	_, chunked, err := c.start(request)
	if err != nil {
		return nil, err
	}
	if !chunked {
		return nil, errors.New("the answer is not a stream")
	}
	delays, ended := make([]float64, 0, tokens), false
	for lines := bufio.NewReader(httputil.NewChunkedReader(c.r)); err == nil; {
		var line []byte
		line, err = lines.ReadSlice('\n')
		if sent, ok := play.StampOf(line); ok {
			delays = append(delays, milliseconds(time.Duration(c.at-sent)))
		}
		ended = ended || bytes.HasPrefix(line, []byte("data: [DONE]"))
	}
	if !errors.Is(err, io.EOF) || !ended || len(delays) != tokens {
		return nil, fmt.Errorf("the stream was cut short: %d of %d events, end marker: %t: %w", len(delays), tokens, ended, err)
	}
	return delays, play.ReadTrailer(c.r)
}

// milliseconds returns d as a number.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
