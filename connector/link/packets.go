package link

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// packetBytes is the maximum size of quic-go's packets. On a byte stream they are 1280
	// bytes long: with another Config.InitialPacketSize, quic-go 0.63 waits busily while its pacer
	// allows less than a packet of that size.
	packetBytes = 1452
	// packetLength is the size of the length before each packet.
	packetLength = 2
	// lastPackets is the space reserved for the last packets of a connection: quic-go may
	// queue 8 before the one with the close code.
	lastPackets = 10 * (packetLength + packetBytes)
	// stallTimeout is how long the other side may not read.
	stallTimeout = idleTimeout
)

// packets adapts a byte stream to a socket for QUIC. Each packet is preceded by its
// length, two bytes, big endian. Queued packets are written together.
type packets struct {
	raw    net.Conn
	remote net.Addr
	in     *bufio.Reader
	broken chan struct{} // closed after the last ReadFrom

	mu      sync.Mutex
	change  sync.Cond     // of the fields below
	out     *bufio.Writer // packets for the stream; nil: none
	leaving bool          // the connection is being closed: WriteTo must not wait
	err     error         // of the stream, or after Close
}

func newPackets(raw net.Conn) *packets {
	p := &packets{raw: raw, remote: raw.RemoteAddr(), in: bufio.NewReader(raw), broken: make(chan struct{})}
	if tcp, ok := p.remote.(*net.TCPAddr); ok {
		p.remote = (*net.UDPAddr)(tcp) // quic-go compares it for each packet, other types by their text
	}
	p.change.L = &p.mu
	go p.write()
	return p
}

// ReadFrom implements [net.PacketConn]. Its error is never temporary: quic-go continues to
// read after temporary errors.
func (p *packets) ReadFrom(b []byte) (int, net.Addr, error) {
	n, err := p.read(b)
	if err != nil {
		close(p.broken) // quic-go does not read again
		return 0, nil, fmt.Errorf("reading packets: %w", err)
	}
	return n, p.remote, nil
}

func (p *packets) read(b []byte) (int, error) {
	length, err := p.in.Peek(packetLength)
	if err != nil {
		return 0, err
	}
	n := int(binary.BigEndian.Uint16(length))
	if n > len(b) {
		return 0, Malformed("a packet is too large")
	}
	_, _ = p.in.Discard(packetLength)
	return io.ReadFull(p.in, b[:n])
}

// WriteTo implements [net.PacketConn]. It waits while the queue is full, unless the
// connection is being closed.
func (p *packets) WriteTo(b []byte, _ net.Addr) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.out != nil && p.out.Available() < lastPackets && !p.leaving && p.err == nil {
		p.change.Wait()
	}
	if p.err != nil {
		return 0, p.err
	}
	if p.out == nil {
		p.out = getWriter(p.raw)
		p.change.Broadcast()
	}
	// A packet that does not fit is dropped, as on any path.
	if packetLength+len(b) <= p.out.Available() {
		_, _ = p.out.Write(binary.BigEndian.AppendUint16(p.out.AvailableBuffer(), uint16(len(b))))
		_, _ = p.out.Write(b)
	}
	return len(b), nil
}

// write writes queued packets until the stream ends.
func (p *packets) write() {
	stalled := time.AfterFunc(stallTimeout, func() { _ = p.Close() })
	stalled.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for p.out == nil && p.err == nil {
			p.change.Wait()
		}
		if p.err != nil {
			return
		}
		batch := p.out
		p.out = nil
		p.change.Broadcast()
		p.mu.Unlock()
		stalled.Reset(stallTimeout)
		err := batch.Flush()
		stalled.Stop()
		putWriter(batch)
		p.mu.Lock()
		p.fail(err)
	}
}

// fail ends all writes if err is not nil. The caller holds mu.
func (p *packets) fail(err error) {
	if p.err == nil && err != nil {
		p.err = err
		p.change.Broadcast()
	}
}

// leave lets the connection close even if the stream is blocked.
func (p *packets) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving = true
	p.change.Broadcast()
}

// Close implements [net.PacketConn].
func (p *packets) Close() error {
	p.mu.Lock()
	p.fail(net.ErrClosed)
	p.mu.Unlock()
	return p.raw.Close()
}

// LocalAddr implements [net.PacketConn].
func (p *packets) LocalAddr() net.Addr { return p.raw.LocalAddr() }

// The deadlines implement [net.PacketConn]. quic-go sets one to end a ReadFrom; here Close
// ends it.
func (p *packets) SetDeadline(time.Time) error      { return nil }
func (p *packets) SetReadDeadline(time.Time) error  { return nil }
func (p *packets) SetWriteDeadline(time.Time) error { return nil }

// quic-go logs a warning about sockets without these methods.
func (p *packets) SetReadBuffer(int) error  { return nil }
func (p *packets) SetWriteBuffer(int) error { return nil }
