//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
)

// crowd calls one in a loop for each of n attackers until ctx ends.
func crowd(ctx context.Context, n int, one func(i, run int) error) (runs, failed int64) {
	var all sync.WaitGroup
	var ran, missed atomic.Int64
	for i := range n {
		all.Go(func() {
			time.Sleep(time.Duration(i) * rampUp / time.Duration(n))
			for run := 0; ctx.Err() == nil; run++ {
				ran.Add(1)
				if one(i, run) != nil {
					missed.Add(1)
					select {
					case <-ctx.Done():
					case <-time.After(100 * time.Millisecond):
					}
				}
			}
		})
	}
	all.Wait()
	return ran.Load(), missed.Load()
}

// address returns the address of an attacker.
func address(i int) net.IP { return net.IPv4(127, 0, 1, byte(1+i%addresses)) }

// slowClients sends requests that never end, including upgrades to the tunnel.
func slowClients(ctx context.Context, g *target) string {
	starts := []string{
		"", "GET " + link.WebSocketPath + " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nA: ",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 30000000\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 500<<10),
	}
	runs, failed := crowd(ctx, attackers, func(i, _ int) error {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: address(i)}}
		conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(g.URL, "http://"))
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		_, err = io.WriteString(conn, starts[i%len(starts)])
		for err == nil {
			_, err = conn.Write([]byte("x"))
			time.Sleep(time.Second)
		}
		return nil
	})
	return fmt.Sprintf("%d connections, %d of them refused", runs, failed)
}

// overQUIC returns an attack whose attackers open QUIC connections and call use on them.
func overQUIC(use func(ctx context.Context, conn *quic.Conn, run int)) attack {
	return func(ctx context.Context, g *target) string {
		server, err := net.ResolveUDPAddr("udp", g.UDP)
		if err != nil {
			return err.Error()
		}
		transports := make([]*quic.Transport, addresses)
		for i := range transports {
			socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: address(i)})
			if err != nil {
				return err.Error()
			}
			transports[i] = &quic.Transport{Conn: socket}
			defer func() {
				_ = transports[i].Close()
				_ = socket.Close()
			}()
		}
		runs, failed := crowd(ctx, attackers, func(i, run int) error {
			conn, err := transports[i%addresses].Dial(ctx, server, link.ConnectorTLS("", g.tokens[0].Pin), link.ConnectorQUIC(0))
			if err != nil {
				return err
			}
			use(ctx, conn, run)
			select {
			case <-ctx.Done():
			case <-conn.Context().Done():
			}
			return conn.CloseWithError(0, "")
		})
		return fmt.Sprintf("%d connections, %d of them refused", runs, failed)
	}
}

// overWebSocket does the same over WebSockets. use gets the byte stream inside.
func overWebSocket(use func(ctx context.Context, conn net.Conn, g *target, run int)) attack {
	return func(ctx context.Context, g *target) string {
		runs, failed := crowd(ctx, attackers, func(i, run int) error {
			conn, err := dialWebSocket(ctx, g, i)
			if err != nil {
				return err
			}
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			use(ctx, conn, g, run)
			_, _ = io.Copy(io.Discard, conn)
			return nil
		})
		return fmt.Sprintf("%d connections, %d of them refused", runs, failed)
	}
}

// dialWebSocket opens a WebSocket for attacker i.
func dialWebSocket(ctx context.Context, g *target, i int) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: address(i)}}
	client := &http.Client{Transport: &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	socket, answer, err := websocket.Dial(ctx, g.URL+link.WebSocketPath,
		&websocket.DialOptions{HTTPClient: client, Subprotocols: []string{link.Subprotocol}})
	if err != nil {
		if answer != nil && answer.Body != nil {
			_ = answer.Body.Close()
		}
		return nil, err
	}
	conn := websocket.NetConn(context.Background(), socket, websocket.MessageBinary)
	return closing{conn, socket}, nil
}

// closing is a WebSocket that closes without a close frame.
type closing struct {
	net.Conn
	socket *websocket.Conn
}

func (c closing) Close() error { return c.socket.CloseNow() }

// frame returns the header of a control message of size bytes, and the first have bytes of it.
func frame(size, have int) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(size)), strings.Repeat(" ", have)...)
}

// write writes to a stream within two seconds.
func write(stream *quic.Stream, data []byte) {
	_ = stream.SetWriteDeadline(time.Now().Add(2 * time.Second))
	_, _ = stream.Write(data)
}

// badHello returns an invalid hello: one above the maximum size, an incomplete one, or one that would decode
// to much more memory than its size.
func badHello(run int) []byte {
	switch run % 3 {
	case 0:
		return frame(1<<20, 1<<20-1)
	case 1:
		return frame(300<<10, 300<<10-1)
	default:
		text := `{"type":"hello","data":{"upstreams":[` + strings.Repeat(`"",`, 100_000) + `""]}}`
		return append(frame(len(text), 0), text...)
	}
}

// quicHandshake sends nothing after the handshake.
func quicHandshake(context.Context, *quic.Conn, int) {}

// quicHello sends an invalid hello.
func quicHello(ctx context.Context, conn *quic.Conn, run int) {
	if stream, err := conn.OpenStreamSync(ctx); err == nil {
		write(stream, badHello(run))
	}
}

// quicStreams opens all streams that it may open and fills them.
func quicStreams(_ context.Context, conn *quic.Conn, _ int) {
	stream, err := conn.OpenStream()
	if err == nil {
		write(stream, badHello(1))
	}
	for err == nil {
		if stream, err = conn.OpenStream(); err == nil {
			write(stream, make([]byte, 1<<20))
		}
	}
}

// webHandshake stops within one of the layers of a WebSocket.
func webHandshake(ctx context.Context, conn net.Conn, g *target, run int) {
	switch run % 3 {
	case 0: // WebSocket only
	case 1:
		_, _ = conn.Write(packet(initial, 1000)[:500])
	case 2:
		_, _ = webConnection(ctx, conn, g) // handshake only
	}
}

// webHello sends an invalid hello.
func webHello(ctx context.Context, conn net.Conn, g *target, run int) {
	if c, err := webConnection(ctx, conn, g); err == nil {
		quicHello(ctx, c.Conn, run)
	}
}

func webConnection(ctx context.Context, conn net.Conn, g *target) (*link.Conn, error) {
	return link.WebSocketConnector(ctx, conn, link.ConnectorTLS("", g.tokens[0].Pin), link.ConnectorQUIC(0))
}

// Beginnings of packets, RFC 9000 §17.2: of a connection, of a connection with an unknown version, and of a
// packet after a handshake that has not happened.
const (
	initial = "\xc0\x00\x00\x00\x01\x08"
	unknown = "\xc0\x0a\x0a\x0a\x0a\x08"
	short   = "\x40"
)

// packet returns a packet of random bytes of this size, in the framing of the WebSocket.
func packet(start string, size int) []byte {
	p := append(binary.BigEndian.AppendUint16(nil, uint16(size)), start...)
	noise := make([]byte, max(size-len(start), 0))
	_, _ = rand.Read(noise)
	return append(p, noise...)
}

// webPackets sends packets until the connection fails. Every second attacker does not read.
func webPackets(ctx context.Context, conn net.Conn, _ *target, run int) {
	if run%2 == 0 {
		go func() { _, _ = io.Copy(io.Discard, conn) }()
	}
	starts := []string{initial, unknown, short, ""}
	start := starts[run/2%len(starts)]
	size := 1200
	if start == "" {
		size = 0
	}
	var err error
	for n := 1; err == nil && ctx.Err() == nil; n++ {
		if _, err = conn.Write(packet(start, size)); n%framesAtOnce == 0 {
			time.Sleep(pace)
		}
	}
}
