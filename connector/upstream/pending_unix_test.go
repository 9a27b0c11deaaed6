//go:build unix

package upstream

import (
	"io"
	"net"
	"testing"
)

// A connection is not used once something has arrived on it, or it has ended, even if it is taken at once.
func TestPoolTakenAtOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	used := 0
	for i := range 200 {
		near, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		far, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		p := &pool{passed: true}
		if i%2 == 0 {
			io.WriteString(far, "surplus")
		} else {
			far.Close()
		}
		p.put(&connection{Conn: near, raw: near, pool: p})
		if c := p.take(); c != nil {
			used++
			c.close()
		}
		if p.keeps() {
			t.Error("further connections are kept")
		}
		far.Close()
	}
	if used > 0 {
		t.Errorf("%d connections with surplus bytes, or at their end, were used", used)
	}
}
