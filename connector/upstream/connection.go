package upstream

import (
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// upstreamIdle is below the 5 s after which common model servers close idle
	// connections.
	upstreamIdle = 4 * time.Second
	// idleMargin is subtracted from the upstream's keep-alive timeout.
	idleMargin = time.Second
	// maxIdle bounds the idle connections to one upstream.
	maxIdle = 256
)

// connection is a connection to an upstream, for one request at a time.
type connection struct {
	net.Conn          // the one to write to
	raw      net.Conn // below TLS, or the same
	in       *link.AnswerReader
	shut     func()        // closes it at once; safe for concurrent use
	life     time.Duration // how long it may be idle
	until    time.Time     // when it has been idle for that long

	system  syscall.RawConn // nil: no access to the socket
	look    func(fd uintptr) bool
	nothing bool // look found neither bytes nor an end
}

// newConnection wraps conn, which is raw or TLS on top of it.
func newConnection(conn, raw net.Conn) *connection {
	c := &connection{Conn: conn, raw: raw, in: link.NewAnswerReader(conn), life: upstreamIdle}
	// Not conn.Close: with TLS it waits to send an alert.
	c.shut = func() { _ = raw.Close() }
	if s, ok := raw.(syscall.Conn); ok {
		c.system, _ = s.SyscallConn()
	}
	c.look = func(fd uintptr) bool {
		c.nothing = silent(fd)
		return true
	}
	return c
}

// follow shortens the connection's idle time to the timeout in the Keep-Alive field of an
// answer.
func (c *connection) follow(answer http.Header) {
	for _, value := range answer["Keep-Alive"] {
		for parameter := range strings.SplitSeq(value, ",") {
			text, ok := strings.CutPrefix(strings.TrimSpace(parameter), "timeout=")
			if seconds, err := strconv.Atoi(text); ok && err == nil && seconds >= 0 {
				c.life = min(upstreamIdle, time.Duration(seconds)*time.Second-idleMargin)
			}
		}
	}
}

// usable reports whether an idle connection is open and has nothing to read. Unsolicited
// data, like a 408 before a close, is not the next answer.
func (c *connection) usable() bool {
	return c.system == nil || c.system.Read(c.look) == nil && c.nothing
}

// idleConns are the idle connections to one upstream. The zero value is ready.
type idleConns struct {
	mu     sync.Mutex
	conns  []*connection // in the order in which they became idle
	timer  *time.Timer   // for prune; nil before the first connection
	closed bool          // the upstream is no longer used, and keeps none
}

// take returns the most recently used connection, or nil.
func (p *idleConns) take() *connection {
	for {
		p.mu.Lock()
		n := len(p.conns)
		if n == 0 {
			p.mu.Unlock()
			return nil
		}
		c := p.conns[n-1]
		p.conns[n-1] = nil
		p.conns = p.conns[:n-1]
		p.mu.Unlock()
		if time.Until(c.until) > 0 && c.usable() {
			return c
		}
		c.shut()
	}
}

func (p *idleConns) put(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.conns) >= maxIdle || c.life <= 0 {
		c.shut()
		return
	}
	c.until = time.Now().Add(c.life)
	p.conns = append(p.conns, c)
	if len(p.conns) == 1 {
		p.pruneAfter(c.life)
	}
}

// pruneAfter schedules prune after d. The caller holds mu.
func (p *idleConns) pruneAfter(d time.Duration) {
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.prune)
		return
	}
	p.timer.Reset(d)
}

func (p *idleConns) prune() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, old := time.Now(), 0
	for old < len(p.conns) && !now.Before(p.conns[old].until) {
		p.conns[old].shut()
		old++
	}
	p.conns = slices.Delete(p.conns, 0, old)
	if len(p.conns) > 0 {
		p.pruneAfter(p.conns[0].until.Sub(now))
	}
}

func (p *idleConns) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.shut()
	}
	clear(p.conns)
	p.conns = p.conns[:0]
}

// close closes all idle connections, and those that become idle later.
func (p *idleConns) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.drop()
}
