package cluster

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/rig/freeport"
)

// proxy forwards TCP connections to an etcd, with faults.
type proxy struct {
	url     string
	to      string
	delay   atomic.Int64 // in nanoseconds, for each direction
	swallow atomic.Bool  // drop everything, but keep connections open
	answers atomic.Bool  // drop what the server sends
	refuse  atomic.Bool  // close new connections
	dialed  atomic.Int64 // number of new connections

	lose atomic.Bool // drop what the client sends; deliver sends it later

	mu    sync.Mutex
	conns map[net.Conn]bool
	lost  map[net.Conn][]byte // dropped bytes, by connection to the server
	late  []byte              // bytes from the server after the client had disconnected
}

// hasLost reports whether the client has sent this while lose was set.
func (p *proxy) hasLost(data string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, lost := range p.lost {
		if bytes.Contains(lost, []byte(data)) {
			return true
		}
	}
	return false
}

// deliver sends the dropped bytes, even if the client has disconnected.
func (p *proxy) deliver(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for server, lost := range p.lost {
		if _, err := server.Write(lost); err != nil {
			t.Fatal(err)
		}
	}
}

// answered reports whether the server has sent this after the client had disconnected.
func (p *proxy) answered(data string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(p.late, []byte(data))
}

// forget resets the dropped bytes, so that hasLost returns false.
func (p *proxy) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for server := range p.lost {
		server.Close()
	}
	clear(p.lost)
	p.late = nil
}

// leadTo forwards new connections to another server, and closes the present ones.
func (p *proxy) leadTo(s *server) {
	p.mu.Lock()
	p.to = s.url[len("http://"):]
	p.mu.Unlock()
	p.cut()
}

func newProxy(t testing.TB, s *server) *proxy {
	t.Helper()
	l, err := freeport.Listen()
	must(t, err)
	p := &proxy{
		url: "http://" + l.Addr().String(), to: s.url[len("http://"):],
		conns: map[net.Conn]bool{}, lost: map[net.Conn][]byte{},
	}
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.forget()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	p.dialed.Add(1)
	if p.refuse.Load() {
		return
	}
	p.mu.Lock()
	p.conns[client] = true
	to := p.to
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, client)
		p.mu.Unlock()
	}()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.lost[server] == nil {
			server.Close()
		}
	}()
	go func() {
		p.copy(client, server, &p.answers)
		client.Close()
	}()
	p.copy(server, client, nil)
}

// copy copies to the client if swallow is not nil, and otherwise to the server.
func (p *proxy) copy(to, from net.Conn, swallow *atomic.Bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		time.Sleep(time.Duration(p.delay.Load()))
		toClient := swallow != nil
		switch {
		case p.swallow.Load() || toClient && swallow.Load():
			continue
		case p.lose.Load() && !toClient:
			p.mu.Lock()
			p.lost[to] = append(p.lost[to], buffer[:n]...)
			p.mu.Unlock()
			continue
		}
		switch _, err := to.Write(buffer[:n]); {
		case err != nil && !toClient:
			return
		case err != nil:
			p.mu.Lock()
			p.late = append(p.late, buffer[:n]...)
			p.mu.Unlock()
		}
	}
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// trouble breaks connections until the test ends: it delays them, cuts them, and drops bytes before it cuts
// them.
func (p *proxy) trouble(t testing.TB) {
	stop, done := make(chan struct{}), make(chan struct{})
	pause := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-stop:
			return false
		}
	}
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			p.delay.Store(int64(time.Duration(i%4) * 5 * time.Millisecond))
			if !pause(250 * time.Millisecond) {
				return
			}
			swallow := []*atomic.Bool{&p.swallow, &p.answers, &p.refuse}[i%3]
			swallow.Store(true)
			ok := pause(100 * time.Millisecond)
			p.cut()
			swallow.Store(false)
			if !ok {
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
}
