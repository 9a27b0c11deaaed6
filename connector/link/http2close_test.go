package link

import (
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestHTTP2ClosesOnce: a tunnel may be closed for two reasons at the same
// moment, but the trailer that says why is to be written only once.
func TestHTTP2ClosesOnce(t *testing.T) {
	const times = 10000
	raw, other := net.Pipe()
	defer other.Close()
	secure := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	var said atomic.Int32
	var saying sync.WaitGroup
	for range times {
		c := newHTTP2Conn(t.Context(), secure)
		var ready atomic.Int32
		var closing sync.WaitGroup
		for _, code := range []CloseCode{CloseLost, CloseReplaced} {
			closing.Go(func() {
				for ready.Add(1); ready.Load() < 2; {
				}
				c.part(code, "", func() {
					said.Add(1)
					c.drop()
				})
			})
		}
		closing.Wait()
		saying.Go(func() { <-c.gone })
	}
	saying.Wait()
	if n := said.Load(); n > times {
		t.Errorf("%d connections said %d times why they close", times, n)
	}
}

// TestHTTP2ClosesAtTheBeginning: the connector may leave while the gateway's
// control stream is just being answered.
func TestHTTP2ClosesAtTheBeginning(t *testing.T) {
	var ending []Conn
	for range 50 {
		p := newHTTP2Pair(t, nil)
		connector := p.connector.(*http2Connector)
		var opening sync.WaitGroup
		opening.Go(func() { _, _ = p.gateway.Control(t.Context()) }) // it fails, or not, as the dice fall
		for connector.control.Load() == nil {
			runtime.Gosched()
		}
		_ = connector.Close(CloseReplaced, "")
		opening.Wait()
		ending = append(ending, p.gateway, connector)
	}
	for _, conn := range ending {
		select {
		case <-conn.Context().Done():
		case <-time.After(10 * time.Second):
			t.Fatalf("a %T is still open", conn)
		}
	}
}
