//go:build linux

//lint:file-ignore SA1019 the peer of a tunnel is HTTP/2 on a connection of its own, as in package link

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/postern-dev/postern/connector/link"
)

// control is the stream that the gateway opens first.
const control = 1

// A peer is a connector that speaks HTTP/2 by hand.
type peer struct {
	conn   *tls.Conn
	framer *http2.Framer
	err    error // the first of writing
}

// newPeer shakes hands in a WebSocket, and reads the beginning of HTTP/2.
func newPeer(ctx context.Context, raw net.Conn, pin string) (*peer, error) {
	conn := tls.Client(raw, link.ConnectorTLS(pin))
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return nil, err
	}
	p := &peer{conn: conn, framer: http2.NewFramer(conn, conn)}
	p.framer.AllowIllegalReads, p.framer.AllowIllegalWrites = true, true
	p.note(p.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 2000}))
	p.note(p.framer.WriteSettingsAck())
	return p, p.err
}

func (p *peer) note(err error) {
	if p.err == nil {
		p.err = err
	}
}

// headers encodes fields, which are pairs.
func headers(fields ...string) []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // to memory
	}
	return block.Bytes()
}

// answer begins the control stream.
func (p *peer) answer() {
	p.note(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: control, BlockFragment: headers(":status", "200"), EndHeaders: true}))
}

// data sends on the control stream.
func (p *peer) data(b []byte) {
	for len(b) > 0 && p.err == nil {
		n := min(len(b), 16<<10)
		p.note(p.framer.WriteData(control, false, b[:n]))
		b = b[n:]
	}
}

// say sends a control message.
func (p *peer) say(m link.Message) {
	var frame bytes.Buffer
	p.note(link.NewControl(&frame).Send(m))
	p.data(frame.Bytes())
}
