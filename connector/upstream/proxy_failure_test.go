package upstream

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// TestProxyNeverRepeats: an upstream breaks a connection after it has read all or part of a
// request. It may be at work, so neither it nor another connector may get the request again.
func TestProxyNeverRepeats(t *testing.T) {
	ends := map[string]func(conn *net.TCPConn){
		"closes at once": func(*net.TCPConn) {},
		"closes later":   func(*net.TCPConn) { time.Sleep(200 * time.Millisecond) },
		"resets at once": func(conn *net.TCPConn) { conn.SetLinger(0) },
		"resets later":   func(conn *net.TCPConn) { time.Sleep(200 * time.Millisecond); conn.SetLinger(0) },
	}
	for name, end := range ends {
		for _, size := range []int{2, 100 << 10, 8 << 20} {
			for _, whole := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %d bytes, whole %v", name, size, whole), func(t *testing.T) {
					t.Parallel()
					var begun atomic.Int32
					address, conns := scripted(t, func(_ int32, conn net.Conn, in *bufio.Reader) {
						if _, err := in.ReadByte(); err != nil {
							return
						}
						in.UnreadByte()
						begun.Add(1)
						if whole && !takeRequest(in) {
							t.Error("the request did not come whole")
						}
						end(conn.(*net.TCPConn))
					})
					if w := ask(t.Context(), proxyTo(t, address, nil),
						strings.Repeat("x", size)); w.aborted != link.ErrUpstreamReset || w.status != 0 {
						t.Errorf("status %d, aborted %v", w.status, w.aborted)
					}
					if begun.Load() != 1 || conns.Load() != 1 {
						t.Errorf("the request came %d times, over %d connections", begun.Load(), conns.Load())
					}
				})
			}
		}
	}
}

func TestKeyFileErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	for text, want := range map[string]string{
		" \n":                     path + " is empty; write the upstream's API key into it",
		"a\nb":                    path + " must contain only the key, on one line",
		strings.Repeat("x", 8193): path + " has more than the 8192 bytes allowed for a key",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openKeyFile(path, time.Now, quiet); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := openKeyFile("/none", time.Now, quiet); err == nil ||
		err.Error() != "open /none: no such file or directory" {
		t.Errorf("got %v", err)
	}
}
