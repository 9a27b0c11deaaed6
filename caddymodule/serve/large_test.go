package serve

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// discard is a client that reads its answer and keeps only the status.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }

// peakHeap returns a function that returns the largest growth of the heap, with its garbage,
// since the start, in bytes.
func peakHeap() func() int64 {
	runtime.GC()
	heap := func() int64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return int64(sample[0].Value.Uint64())
	}
	start, peak, end, ended := heap(), int64(0), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			peak = max(peak, heap()-start)
			select {
			case <-end:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() int64 {
		close(end)
		<-ended
		return peak
	}
}

// Translating many answers at a time needs at most twice their size, although the translation of
// each one needs seven times its size and the budget allows that.
func TestLargeAnswersAreBoundedTogether(t *testing.T) {
	const size, answers = 1 << 20, 64
	body := completionOf(strings.Repeat("x", size))
	for name, length := range map[string]int64{"known size": int64(len(body)), "unknown size": -1} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, 16<<30)
			ready := make(chan struct{})
			var waiting atomic.Int32
			g.answer = func(*http.Request) *http.Response {
				if waiting.Add(1) == answers {
					close(ready)
				}
				<-ready
				return upstreamAnswer("application/json", strings.NewReader(body), length)
			}
			peak := peakHeap()
			var all sync.WaitGroup
			for range answers {
				all.Go(func() {
					w := &discard{header: http.Header{}}
					g.send(w, httptest.NewRequest(http.MethodPost, "/v1/responses", strings.NewReader(requests["/v1/responses"])))
					if w.status != http.StatusOK {
						t.Errorf("status %d", w.status)
					}
				})
			}
			all.Wait()
			at := peak()
			t.Logf("%d MiB for %d answers of %d MiB", at>>20, answers, size>>20)
			if at > int64(2*answers*size) {
				t.Errorf("%d MiB for %d answers of %d MiB", at>>20, answers, size>>20)
			}
		})
	}
}

// Large bodies wait for each other. Clients that send nothing delay others by at most largeTime.
func TestLargeBodiesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, 1<<30)
		g.answer = func(r *http.Request) *http.Response {
			_ = r.Body.Close()
			return upstreamAnswer("application/json", strings.NewReader(completionOf("a")), -1)
		}
		body := strings.Replace(requests["/v1/chat/completions"], "TEXT", strings.Repeat("x", largeBody), 1)
		var clients sync.WaitGroup
		send := func(body io.Reader, length int64) {
			r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", body)
			r.ContentLength = length
			g.send(&discard{header: http.Header{}}, r)
		}
		silent, stop := io.Pipe()
		for range largeBodies {
			clients.Go(func() { send(silent, int64(len(body))) })
		}
		synctest.Wait()
		begun := time.Now()
		read := &counted{Reader: strings.NewReader(body)}
		clients.Go(func() { send(read, int64(len(body))) })
		synctest.Wait()
		if read.read > 0 {
			t.Error("a large body was read without a permit")
		}
		small := &counted{Reader: strings.NewReader(requests["/v1/chat/completions"])}
		send(small, -1)
		if small.read == 0 || time.Since(begun) > 0 {
			t.Error("a small body waited")
		}
		time.Sleep(largeTime)
		synctest.Wait()
		if read.read != len(body) {
			t.Errorf("%d bytes of a large body were read after %v", read.read, time.Since(begun))
		}
		_ = stop.CloseWithError(io.ErrUnexpectedEOF)
		clients.Wait()
		for range largeBodies {
			if _, err := g.backend.bodies.Enter(t.Context(), fair.Client{}, -1, 0); err != nil {
				t.Errorf("a permit was not released: %v", err)
			}
		}
	})
}

// stalled is a client that reads its answer only after release.
type stalled struct {
	discard
	release chan struct{}
}

func (s *stalled) Write(p []byte) (int, error) {
	<-s.release
	return len(p), nil
}

func (s *stalled) Flush() {}

// A client that does not read its answer does not keep a permit.
func TestSlowClientsKeepNoPlace(t *testing.T) {
	streamed := strings.Replace(requests["/v1/chat/completions"], "false", "true", 1)
	body := completionOf(strings.Repeat("x", largeBody))
	for name, c := range map[string]struct {
		request string
		answer  io.Reader
	}{
		"whole":    {requests["/v1/chat/completions"], strings.NewReader(body)},
		"replayed": {streamed, strings.NewReader(body)},
		"broken": {
			requests["/v1/chat/completions"],
			io.MultiReader(strings.NewReader(body), iotest.ErrReader(io.ErrUnexpectedEOF)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(t, 1<<30)
				g.answer = func(*http.Request) *http.Response { return upstreamAnswer("application/json", c.answer, -1) }
				w := &stalled{discard{header: http.Header{}}, make(chan struct{})}
				go g.send(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(c.request)))
				defer synctest.Wait()
				defer close(w.release)
				time.Sleep(largeTime)
				synctest.Wait()
				for range largeBodies {
					if _, err := g.backend.bodies.Enter(t.Context(), fair.Client{}, -1, 0); err != nil {
						t.Fatalf("a client that does not read keeps a permit: %v", err)
					}
					defer g.backend.bodies.Leave()
				}
			})
		})
	}
}

// A compressed request does not wait for a permit during its turn to be decompressed, while
// answers with permits wait for their turns to be translated.
func TestPlacesAndTurnsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, 1<<30)
		begin, end := completionOf(strings.Repeat("x", largeBody)), make(chan struct{})
		g.answer = func(*http.Request) *http.Response {
			rest := func() (io.Reader, error) { <-end; return strings.NewReader("  "), io.EOF }
			return upstreamAnswer("application/json", io.MultiReader(strings.NewReader(begin), lazy(rest)), -1)
		}
		var clients sync.WaitGroup
		for range largeBodies {
			clients.Go(func() { g.post("/v1/chat/completions", requests["/v1/chat/completions"]) })
		}
		synctest.Wait() // the answers have all permits
		begun := time.Now()
		body := gzipped(t, []byte(strings.Replace(requests["/v1/chat/completions"], "TEXT",
			strings.Repeat("x", largeBody), 1)))
		for range runtime.GOMAXPROCS(0) { // takes all turns
			clients.Go(func() {
				r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", bytes.NewReader(body))
				r.Header.Set("Content-Encoding", "gzip")
				g.send(&discard{header: http.Header{}}, r)
			})
		}
		synctest.Wait()
		close(end)
		clients.Wait()
		if took := time.Since(begun); took > 0 {
			t.Errorf("the requests waited %v for each other", took)
		}
	})
}

// lazy is a reader that is opened by its first Read.
type lazy func() (io.Reader, error)

func (l lazy) Read(p []byte) (int, error) {
	r, err := l()
	n, _ := r.Read(p)
	return n, err
}
