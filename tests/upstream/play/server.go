package play

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// ReportPath is where a server reports what it does.
const ReportPath = "/report"

// A Report is what a server does, and what it has seen since its last report.
type Report struct {
	Running int     `json:"running"` // requests with an id
	Seen    []int64 `json:"seen"`    // their ids
}

// A server plays scripts.
type server struct {
	mu     sync.Mutex
	report Report
}

// Serve serves at an address until the process is killed. It announces where.
//
// It speaks HTTP/1.1 on the bare connection: what it does not spend is not in
// the way of what is measured.
func Serve(address string, announce io.Writer) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Fprintln(announce, l.Addr())
	s := &server{}
	for {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accepting: %w", err)
		}
		go func() {
			defer c.Close()
			conn := conn{server: s, c: c, r: bufio.NewReaderSize(c, 16<<10)}
			for conn.serve() == nil {
				continue
			}
		}()
	}
}

// A conn is one connection. Its buffers serve one request after the other.
type conn struct {
	server *server
	c      net.Conn
	r      *bufio.Reader
	body   []byte
	out    []byte
	event,
	half []byte
}

// serve answers one request. Any error ends the connection.
func (c *conn) serve() error {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return err
	}
	post, report := bytes.HasPrefix(line, []byte("POST ")), bytes.HasPrefix(line, []byte("GET "+ReportPath+" "))
	length, chunked, err := ReadHeader(c.r)
	if err != nil {
		return err
	}
	if c.body, err = ReadBody(c.r, c.body[:0], length, chunked); err != nil {
		return err
	}
	switch {
	case report:
		return c.answer("200 OK", c.server.take())
	case !post:
		return c.answer("404 Not Found", []byte(`{"error":{"code":404,"message":"this model server plays scripts only"}}`))
	}
	s, err := Find(c.body)
	if err != nil {
		return c.answer("400 Bad Request", []byte(`{"error":{"code":400,"message":`+quote(err.Error())+`}}`))
	}
	if s.ID != 0 {
		c.server.enter(s.ID)
		defer c.server.leave()
	}
	if s.First > 0 {
		time.Sleep(s.First)
	}
	if s.End == Fails {
		return c.answer("500 Internal Server Error", []byte(`{"error":{"code":500,"message":"the slot state was lost","type":"server_error"}}`))
	}
	a := newAnswer(s, modelOf(c.body))
	if bytes.Contains(c.body, []byte(`"stream":true`)) {
		a.usage = bytes.Contains(c.body, []byte(`"include_usage":true`))
		return c.stream(a)
	}
	if s.Pace > 0 {
		time.Sleep(time.Duration(s.Tokens) * s.Pace)
	}
	if s.End == Dies {
		return errDies
	}
	c.half = a.appendWhole(c.half[:0])
	return c.answer("200 OK", c.half)
}

// errDies ends the connection of a model that dies in its answer.
var errDies = errors.New("the script wants it")

// modelOf returns the model that a request body names, "" if it names none.
func modelOf(body []byte) string {
	_, rest, found := bytes.Cut(body, []byte(`"model":"`))
	if !found {
		return ""
	}
	name, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(name)
}

// answer sends a whole answer in JSON.
func (c *conn) answer(status string, body []byte) error {
	c.out = append(append(c.out[:0], "HTTP/1.1 "...), status...)
	c.out = append(c.out, "\r\nContent-Type: application/json\r\nContent-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(body)), 10)
	c.out = append(append(c.out, "\r\n\r\n"...), body...)
	return c.send(c.out)
}

// stream writes the events of the script, each in one write and one chunk,
// unless the script is ragged.
func (c *conn) stream(a *answer) error {
	if err := c.send([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n")); err != nil {
		return err
	}
	c.half = c.half[:0]
	next := time.Now()
	for i := 0; ; i++ {
		if a.Pace > 0 {
			time.Sleep(time.Until(next))
			if now := time.Now(); now.Sub(next) > a.Pace {
				next = now // a model that was held up does not catch up in a burst
			}
			next = next.Add(a.Pace)
		}
		if a.End == Dies && i > a.Tokens/2 {
			return errDies
		}
		var more bool
		if c.event, more = a.appendEvent(c.event[:0], i); !more {
			break
		}
		if err := c.sendEvent(a, i); err != nil {
			return err
		}
	}
	c.out = AppendChunk(c.out[:0], c.half)
	return c.send(append(c.out, "0\r\n\r\n"...))
}

// sendEvent writes c.event. In a ragged script a part of every third event
// stays behind in c.half and goes out with the next one: the cut is at any byte.
func (c *conn) sendEvent(a *answer, i int) error {
	keep := 0
	if a.Ragged && i%3 == 1 {
		keep = (int(a.ID)+i)%(len(c.event)-1) + 1
	}
	cut := len(c.event) - keep
	c.half = append(c.half, c.event[:cut]...)
	c.out = AppendChunk(c.out[:0], c.half)
	c.half = append(c.half[:0], c.event[cut:]...)
	return c.send(c.out)
}

func (c *conn) send(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := c.c.Write(b)
	return err
}

// enter counts a request; leave counts it off.
func (s *server) enter(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Running++
	s.report.Seen = append(s.report.Seen, id)
}

func (s *server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Running--
}

// take returns the report, and begins another one.
func (s *server) take() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, _ := json.Marshal(s.report) // numbers cannot fail
	s.report.Seen = nil
	return b
}
