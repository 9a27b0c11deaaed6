package link

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"testing"
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
