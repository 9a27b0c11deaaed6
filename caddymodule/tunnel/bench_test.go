package tunnel

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

// BenchmarkTunnel measures both transports side by side, with all that is
// between a session and a connector: 300 bytes up, 1 KB down. B/op and allocs/op
// are of both ends together.
func BenchmarkTunnel(b *testing.B) {
	answer := []byte(strings.Repeat("x", 1024))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header()["Content-Length"] = []string{"1024"}
		_, _ = w.Write(answer)
	})
	for _, clients := range []string{"1", "64"} {
		for name, newGateway := range map[string]gatewayMaker{
			link.TransportQUIC:      newGateway,
			link.TransportWebSocket: newWebGateway,
		} {
			b.Run("clients="+clients+"/"+name, func(b *testing.B) {
				g := newGateway(b, Options{})
				g.connect(b, "con_1", h)
				s := g.mustSession(b, "con_1")
				request := strings.Repeat("y", 300)
				n := map[string]int{"1": 1, "64": 64}[clients]
				b.ReportAllocs()
				b.ResetTimer()
				var all sync.WaitGroup
				for c := range n {
					all.Go(func() {
						for i := c; i < b.N; i += n {
							if _, err := send(context.Background(), s, request); err != nil {
								b.Error(err)
							}
						}
					})
				}
				all.Wait()
			})
		}
	}
}
