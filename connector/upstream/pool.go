package upstream

import (
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// maxKept and keepTime bound the connections that are kept. Model servers close idle connections after some
	// seconds, so a request does not meet a connection that its server is closing.
	maxKept  = 64
	keepTime = time.Second
	// trialTime is the duration of a trial, and pauseTime how long no connections are kept after a failed one.
	trialTime = 2 * time.Second
	pauseTime = time.Hour
)

// connection is a connection to a model server.
type connection struct {
	net.Conn          // to read and write
	raw      net.Conn // below TLS, or the same
	pool     *pool

	silent chan bool // while it is kept: receives whether nothing has arrived, once it was taken
}

// close closes an idle connection. The side that closes first cannot use its port again for a minute or more
// (TIME_WAIT). Some hundred requests a second would use up all ports. A reset avoids that.
func (c *connection) close() {
	if tcp, ok := c.raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.raw.Close()
}

// pool keeps connections of a server after complete answers, for the next requests. The first one is a trial: it stays
// idle, and others are closed. A server fails if it sends anything to an idle connection, or closes one without
// having announced that: a request could get the rest of another answer, or none.
type pool struct {
	mu     sync.Mutex
	kept   []*connection // the last one is the newest
	trial  bool          // is running
	passed bool
	paused time.Time // no connections are kept before
}

// keeps reports whether a connection may be kept. Otherwise the request asks the server to close it.
func (p *pool) keeps() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed || !p.trial && !time.Now().Before(p.paused)
}

// put keeps an idle connection, or closes it.
func (p *pool) put(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	trial := !p.passed && !p.trial && !time.Now().Before(p.paused)
	if !trial && (!p.passed || len(p.kept) == maxKept) {
		c.close()
		return
	}
	end := time.Now().Add(keepTime)
	if p.trial = trial; trial {
		end = end.Add(trialTime - keepTime)
	} else {
		p.kept = append(p.kept, c)
	}
	c.silent = make(chan bool, 1)
	_ = c.SetReadDeadline(end) // before take sets another one
	go p.watch(c, trial)
}

// take returns a kept connection, or nil.
func (p *pool) take() *connection {
	for {
		p.mu.Lock()
		last := len(p.kept) - 1
		if last < 0 {
			p.mu.Unlock()
			return nil
		}
		c := p.kept[last]
		p.kept = p.kept[:last]
		p.mu.Unlock()
		_ = c.SetReadDeadline(time.Unix(1, 0))
		if <-c.silent && c.SetReadDeadline(time.Time{}) == nil {
			if !pending(c.raw) {
				return c
			}
			p.fail()
		}
		c.close()
	}
}

// fail keeps no connections for a while.
func (p *pool) fail() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed, p.paused = false, time.Now().Add(pauseTime)
}

// watch waits until something arrives on an idle connection, its time is over, or it is taken.
func (p *pool) watch(c *connection, trial bool) {
	n, err := c.Read(make([]byte, 1))
	silent := n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
	p.mu.Lock()
	defer p.mu.Unlock()
	if trial {
		p.trial, p.passed = false, silent
	}
	if !silent {
		p.passed, p.paused = false, time.Now().Add(pauseTime)
	}
	c.silent <- silent
	if i := slices.Index(p.kept, c); i >= 0 || trial {
		p.kept = slices.DeleteFunc(p.kept, func(k *connection) bool { return k == c })
		c.close()
	}
}
