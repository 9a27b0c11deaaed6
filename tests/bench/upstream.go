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
)

// serveUpstream is the scripted model server, in a process of its own. It
// announces its address on standard output and runs until it is killed.
//
// It speaks HTTP/1.1 on the bare connection: what it does not spend is not in
// the way of what is measured.
func serveUpstream(announce io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Fprintln(announce, l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accepting: %w", err)
		}
		go func() {
			defer c.Close()
			u := upstreamConn{c: c, r: bufio.NewReaderSize(c, 16<<10)}
			for u.serve() == nil {
				continue
			}
		}()
	}
}

// upstreamConn is one connection of the upstream. Its buffers serve one request
// after the other.
type upstreamConn struct {
	c    net.Conn
	r    *bufio.Reader
	body []byte
	out  []byte
	event,
	half []byte
}

// serve answers one request. Any error ends the connection.
func (u *upstreamConn) serve() error {
	if _, err := u.r.ReadSlice('\n'); err != nil { // the request line
		return err
	}
	length, chunked, err := readHeader(u.r)
	if err != nil {
		return err
	}
	if u.body, err = readBody(u.r, u.body[:0], length, chunked); err != nil {
		return err
	}
	s, err := parseScript(u.body)
	if err != nil {
		return u.refuse(err)
	}
	if s.Tokens > 0 {
		return u.stream(s, modelOf(u.body))
	}
	u.half = appendCompletion(u.half[:0], modelOf(u.body))
	u.out = append(u.out[:0], "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "...)
	u.out = strconv.AppendInt(u.out, int64(len(u.half)), 10)
	u.out = append(append(u.out, "\r\n\r\n"...), u.half...)
	return u.send(u.out)
}

// refuse answers a request that no generator of ours has sent as it came.
func (u *upstreamConn) refuse(cause error) error {
	text := "the bench upstream does not understand the request: " + cause.Error()
	if err := u.send(fmt.Appendf(nil, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", len(text), text)); err != nil {
		return err
	}
	return cause
}

// stream writes the events of the script, each in one write and one chunk,
// unless the script is ragged.
func (u *upstreamConn) stream(s script, model string) error {
	if err := u.send([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n")); err != nil {
		return err
	}
	u.half = u.half[:0]
	next := time.Now()
	for i := 0; ; i++ {
		if s.Pace > 0 {
			time.Sleep(time.Until(next))
			if now := time.Now(); now.Sub(next) > s.Pace {
				next = now // a model that was held up does not catch up in a burst
			}
			next = next.Add(s.Pace)
		}
		var more bool
		if u.event, more = s.appendEvent(u.event[:0], model, i); !more {
			break
		}
		if err := u.sendEvent(s, i); err != nil {
			return err
		}
	}
	u.out = appendHTTPChunk(u.out[:0], u.half)
	return u.send(append(u.out, "0\r\n\r\n"...))
}

// sendEvent writes u.event. In a ragged script a part of every third event
// stays behind in u.half and goes out with the next one: the cut is at any byte.
func (u *upstreamConn) sendEvent(s script, i int) error {
	keep := 0
	if s.Ragged && i%3 == 1 {
		keep = (s.Seed+i)%(len(u.event)-1) + 1
	}
	cut := len(u.event) - keep
	u.half = append(u.half, u.event[:cut]...)
	u.out = appendHTTPChunk(u.out[:0], u.half)
	u.half = append(u.half[:0], u.event[cut:]...)
	return u.send(u.out)
}

func (u *upstreamConn) send(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := u.c.Write(b)
	return err
}

// appendHTTPChunk appends data as one chunk, or nothing for no data, which
// would end the body.
func appendHTTPChunk(b, data []byte) []byte {
	if len(data) == 0 {
		return b
	}
	b = strconv.AppendInt(b, int64(len(data)), 16)
	b = append(append(b, "\r\n"...), data...)
	return append(b, "\r\n"...)
}

// unknownLength is the length of a body that has no Content-Length.
const unknownLength = -1

// readHeader reads header lines up to the empty one, and returns what they say
// about the body: its length, or that it comes in chunks.
func readHeader(r *bufio.Reader) (length int, chunked bool, err error) {
	length = unknownLength
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, false, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return length, chunked, nil
		}
		if value, ok := headerValue(line, "content-length"); ok {
			if length, err = strconv.Atoi(string(value)); err != nil || length < 0 {
				return 0, false, errors.New("a Content-Length is not a number")
			}
		} else if value, ok := headerValue(line, "transfer-encoding"); ok {
			chunked = bytes.EqualFold(value, []byte("chunked"))
		}
	}
}

// headerValue returns the value of a header line with the name.
func headerValue(line []byte, name string) ([]byte, bool) {
	if len(line) <= len(name) || line[len(name)] != ':' || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return nil, false
	}
	return bytes.TrimSpace(line[len(name)+1:]), true
}

// readBody appends a body to b. One without length and chunks is empty.
func readBody(r *bufio.Reader, b []byte, length int, chunked bool) ([]byte, error) {
	if !chunked {
		start := len(b)
		b = append(b, make([]byte, max(length, 0))...)
		_, err := io.ReadFull(r, b[start:])
		return b, err
	}
	buf := bytes.NewBuffer(b)
	if _, err := buf.ReadFrom(httputil.NewChunkedReader(r)); err != nil {
		return nil, err
	}
	return buf.Bytes(), readTrailer(r)
}

// readTrailer reads what follows the last chunk, up to an empty line.
func readTrailer(r *bufio.Reader) error {
	_, _, err := readHeader(r)
	return err
}
