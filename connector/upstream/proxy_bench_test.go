package upstream

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkProxy measures what a request costs between the tunnel and an upstream that answers
// at once, including both ends of the connection.
func BenchmarkProxy(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, `{"choices":[]}`)
	}))
	defer server.Close()
	p := NewProxy(Set{"box": newServer("box", baseURL(server.URL), nil)}, Options{Logger: quiet, Prober: NewProber(quiet)})
	for _, size := range []int{1 << 10, 100 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			body := strings.Repeat("x", size)
			b.ReportAllocs()
			for b.Loop() {
				r := tunnelRequest(b.Context(), "POST", "/v1/chat/completions", body)
				w := &recorder{}
				p.ServeHTTP(w, r)
				if w.status != http.StatusOK {
					b.Fatalf("status %d, aborted %v", w.status, w.aborted)
				}
			}
		})
	}
}
