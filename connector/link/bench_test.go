package link

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/tests/rig/cputime"
)

// answerJSON is a handler like the connector's: it reads the request and sends
// 1 KB in a known length.
func answerJSON() http.Handler {
	body := []byte(strings.Repeat("x", 1024))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h := w.Header()
		h["Content-Type"] = []string{"application/json"}
		h["Content-Length"] = []string{"1024"}
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(body)
	})
}

// BenchmarkRoundTrip measures both ends over a real connection: 300 bytes up, 1
// KB down. B/op and allocs/op are of both together.
func BenchmarkRoundTrip(b *testing.B) {
	for _, clients := range []int{1, 16, 64} {
		benchBoth(b, "clients="+itoa(clients), func(b *testing.B, newPair pairing) {
			p := newPair(b, answerJSON())
			request := strings.Repeat("y", 300)
			warm(b, p, request)
			b.ReportAllocs()
			before := cputime.Used()
			b.ResetTimer()
			share(clients, b.N, func() {
				if err := p.once(request); err != nil {
					b.Error(err)
				}
			})
			b.StopTimer()
			b.ReportMetric(float64((cputime.Used()-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

func itoa(n int) string {
	return map[int]string{1: "1", 16: "16", 64: "64"}[n]
}

func warm(b *testing.B, p *pair, request string) {
	for range 200 {
		if err := p.once(request); err != nil {
			b.Fatal(err)
		}
	}
	runtime.GC()
}

// once is one request in the way of a gateway.
func (p *pair) once(body string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answer, err := p.roundTrip(ctx, post(body))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return err
}

// share runs f n times in all from several goroutines.
func share(clients, n int, f func()) {
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for i := c; i < n; i += clients {
				f()
			}
		})
	}
	wg.Wait()
}

// BenchmarkStream measures events through a tunnel, one write each.
func BenchmarkStream(b *testing.B) {
	event := []byte("data: " + strings.Repeat("z", 200) + "\n\n")
	benchBoth(b, "events", func(b *testing.B, newPair pairing) {
		p := newPair(b, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range b.N {
				_, _ = w.Write(event)
			}
		}))
		b.ReportAllocs()
		b.SetBytes(int64(len(event)))
		if err := p.once("{}"); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkUpload measures 8 MB bodies.
func BenchmarkUpload(b *testing.B) {
	body := strings.Repeat("b", 8<<20)
	benchBoth(b, "8MB", func(b *testing.B, newPair pairing) {
		p := newPair(b, answerJSON())
		b.ReportAllocs()
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if err := p.once(body); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// benchBoth measures both transports side by side.
func benchBoth(b *testing.B, name string, f func(b *testing.B, newPair pairing)) {
	b.Run(name+"/"+TransportQUIC, func(b *testing.B) { f(b, newPair) })
	b.Run(name+"/"+TransportWebSocket, func(b *testing.B) { f(b, newWebSocketPair) })
}
