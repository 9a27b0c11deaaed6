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

// A target is where a system takes requests.
type target struct {
	Addr string // 127.0.0.1:port
	Key  string // sent as bearer token; the systems without keys ignore it
}

// request returns the bytes of a request with the body.
func (t target) request(body []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: application/json\r\n"+
		"Authorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", t.Addr, t.Key, len(body))
	b.Write(body)
	return b.Bytes()
}

// A client sends requests on one connection, one after the other. It costs less
// than net/http: on few cores the generator's own work is in the way of what it
// measures.
type client struct {
	stamped
	r    *bufio.Reader
	body []byte
}

// stamped is a connection that knows when its last read returned.
type stamped struct {
	net.Conn
	at int64 // by the monotonic clock
}

func (s *stamped) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.at = play.Monotonic()
	return n, err
}

// dial connects to the target. The connection is useless after limit, so that
// nothing can hang.
func (t target) dial(limit time.Duration) (*client, error) {
	c, err := net.DialTimeout("tcp", t.Addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		c.Close()
		return nil, fmt.Errorf("limiting the time of a connection: %w", err)
	}
	cl := &client{stamped: stamped{Conn: c}}
	cl.r = bufio.NewReaderSize(&cl.stamped, 16<<10)
	return cl, nil
}

// errCut is an answer that ended before its end.
var errCut = errors.New("the answer was cut short")

// exchange sends a request and returns the body of its answer, which is valid
// until the next call. An answer other than 200 is an error.
func (c *client) exchange(request []byte) ([]byte, error) {
	length, chunked, err := c.start(request)
	if err != nil {
		return nil, err
	}
	if c.body, err = play.ReadBody(c.r, c.body[:0], length, chunked); err != nil {
		return nil, fmt.Errorf("%w: %w", errCut, err)
	}
	return c.body, nil
}

// start sends a request and reads the head of its answer.
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

// lines sends a request and calls each for every line of the streamed answer,
// with the time at which its last byte had arrived.
func (c *client) lines(request []byte, each func(line []byte, at int64)) error {
	length, chunked, err := c.start(request)
	if err != nil {
		return err
	}
	var body io.Reader = io.LimitReader(c.r, int64(max(length, 0)))
	if chunked {
		body = httputil.NewChunkedReader(c.r)
	}
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			if chunked {
				return play.ReadTrailer(c.r)
			}
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", errCut, err)
		}
		each(line, c.at)
	}
}
