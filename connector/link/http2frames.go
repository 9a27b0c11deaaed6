package link

import (
	"encoding/binary"
	"fmt"
	"net"

	"golang.org/x/net/http2"
)

// frameHeader is the length of a frame's header (RFC 9113 §4.1).
const frameHeader = 9

// frameFilter ends a connection whose peer sends frames that no connector sends.
// package http2 writes a line to the process's log for each of them, so that a
// stranger could fill the log.
type frameFilter struct {
	net.Conn
	header [frameHeader]byte
	have   int  // bytes of header
	rest   int  // bytes of the frame's payload that have yet to come
	begun  bool // the first frame, SETTINGS, was there
}

// Read implements net.Conn.
func (f *frameFilter) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if fault := f.check(p[:n]); fault != nil {
		_ = f.Close()
		return 0, fault
	}
	return n, err
}

// check looks at the headers of the frames in p.
func (f *frameFilter) check(p []byte) error {
	for len(p) > 0 {
		if f.rest > 0 {
			n := min(f.rest, len(p))
			f.rest -= n
			p = p[n:]
			continue
		}
		n := copy(f.header[f.have:], p)
		f.have += n
		p = p[n:]
		if f.have < frameHeader {
			continue
		}
		f.have = 0
		f.rest = int(binary.BigEndian.Uint32(f.header[:4]) >> 8)
		kind := http2.FrameType(f.header[3])
		if !f.begun && kind != http2.FrameSettings || kind > http2.FrameContinuation ||
			kind == http2.FramePriority || kind == http2.FramePushPromise {
			return fmt.Errorf("reading HTTP/2: a connector does not send the frame %v", kind)
		}
		f.begun = true
	}
	return nil
}
