package link

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// soon is the most that a cancel may take to be noticed, in virtual time. It takes some
// milliseconds.
const soon = time.Second

// waiting is a handler that writes its text and then waits for the end
// of its context.
type waiting struct {
	first   string
	started chan struct{}
	ended   chan time.Time
}

func newWaiting(first string) *waiting {
	return &waiting{first, make(chan struct{}, 1), make(chan time.Time, 1)}
}

func (h *waiting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.first != "" {
		_, _ = io.WriteString(w, h.first)
	}
	h.started <- struct{}{}
	<-r.Context().Done()
	h.ended <- time.Now()
	_, _ = io.WriteString(w, "nobody reads this")
}

// check waits for the end of the handler's context.
func (h *waiting) check(t *testing.T, since time.Time) {
	t.Helper()
	if d := wait.For(t, h.ended, "the end of the handler").Sub(since); d > soon {
		t.Errorf("the handler noticed after %v", d)
	}
}

// TestCancelBeforeTheAnswer: also in the middle of a body that is far larger than its windows, and of which the
// connector reads nothing.
func TestCancelBeforeTheAnswer(t *testing.T) {
	for name, size := range map[string]int{"small": 2, "uploading": 8 << 20} {
		t.Run(name, func(t *testing.T) {
			overBothVirtual(t, func(t *testing.T, newPair pairing) {
				h := newWaiting("")
				p := newPair(t, h)
				cause := errors.New("client left")
				ctx, cancel := context.WithCancelCause(t.Context())
				var at time.Time
				go func() {
					<-h.started
					at = time.Now()
					cancel(cause)
				}()
				_, err := p.roundTrip(ctx, post(strings.Repeat("x", size)))
				wantError(t, err, cause)
				h.check(t, at)
				wantError(t, <-p.served, ErrCancelled)
			})
		})
	}
}

func TestCancelInTheAnswer(t *testing.T) {
	for name, cancelBy := range map[string]func(context.CancelFunc, *http.Response){
		"context": func(cancel context.CancelFunc, _ *http.Response) { cancel() },
		"close":   func(_ context.CancelFunc, a *http.Response) { _ = a.Body.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			overBothVirtual(t, func(t *testing.T, newPair pairing) {
				h := newWaiting("data: 1\n\n")
				p := newPair(t, h)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				a, err := p.roundTrip(ctx, post("{}"))
				if err != nil {
					t.Fatal(err)
				}
				buf := make([]byte, 100)
				if n, err := a.Body.Read(buf); string(buf[:n]) != "data: 1\n\n" || err != nil {
					t.Fatalf("read %q, %v", buf[:n], err)
				}
				read := make(chan error, 1)
				go func() { // waits in Read meanwhile
					_, err := a.Body.Read(buf)
					read <- err
				}()
				time.Sleep(20 * time.Millisecond)
				at := time.Now()
				cancelBy(cancel, a)
				h.check(t, at)
				select {
				case err := <-read:
					if err == nil || err == io.EOF {
						t.Errorf("the waiting Read returned %v", err)
					}
				case <-time.After(soon):
					t.Error("the waiting Read did not return")
				}
				_ = a.Body.Close()
				if _, err := a.Body.Read(buf); err == nil || err == io.EOF {
					t.Errorf("Read after Close: %v", err)
				}
			})
		})
	}
}

func TestAbort(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		for _, failed := range append(failures[:], ErrCancelled) {
			t.Run(failed.Name, func(t *testing.T) {
				for _, when := range []string{"", "header", "length", "body"} {
					p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						switch when {
						case "length": // the failure replaces it
							w.Header().Set("Content-Length", "1000")
							w.WriteHeader(200)
						case "header":
							w.WriteHeader(200)
						case "body":
							_, _ = io.WriteString(w, "some")
						}
						w.(*response).Abort(failed)
						w.(*response).Abort(ErrInternal) // the first one counts
						if _, err := io.WriteString(w, "more"); err == nil {
							t.Error("a write after Abort succeeded")
						}
					}))
					_, body, err := p.do(t, post("{}"))
					wantError(t, err, failed)
					// Unless nobody wants it, what was sent before arrives.
					if when == "body" && failed != ErrCancelled && body != "some" {
						t.Errorf("body %q before the abort", body)
					}
					wantError(t, <-p.served, failed)
				}
			})
		}
	})
}

func TestHandlersThatFail(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		for name, h := range map[string]http.HandlerFunc{
			"panic": func(http.ResponseWriter, *http.Request) { panic("oops") },
			"panic after header": func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "some")
				panic("oops")
			},
			"abort panic": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			"wrote too little": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "10")
				_, _ = io.WriteString(w, "some")
			},
			"wrote nothing": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "10")
				w.WriteHeader(200)
			},
			"bad length": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "ten")
				w.WriteHeader(200)
			},
			"bad status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(1000) },
		} {
			t.Run(name, func(t *testing.T) {
				p := newPair(t, h)
				_, _, err := p.do(t, post("{}"))
				want := ErrInternal
				if name == "wrote too little" {
					want = ErrUpstreamReset // an answer of known length has no trailer
				}
				wantError(t, err, want)
				if err := <-p.served; err == nil {
					t.Error("Serve returned no error")
				} else if name == "panic" {
					if _, ok := errors.AsType[*panics.Error](err); !ok || strings.Contains(err.Error(), "oops") {
						t.Errorf("Serve returned %v", err)
					}
				}
			})
		}
	})
}

func TestTooManyBytes(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			_, _ = io.WriteString(w, "some")
			if _, err := io.WriteString(w, "more"); !errors.Is(err, http.ErrContentLength) {
				t.Errorf("write over Content-Length: %v", err)
			}
		}))
		if _, body := p.mustDo(t, post("{}")); body != "some" {
			t.Errorf("body %q", body)
		}
	})
}

// TestNeverACleanEnd writes answers by hand that end before they are complete.
func TestNeverACleanEnd(t *testing.T) {
	for _, answer := range []string{
		"",
		"HTTP/1.1 200 OK\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcd",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r",
		"HTTP/1.1 100 Continue\r\n\r\n",
	} {
		_, err := readAnswer("POST", answer)
		wantError(t, err, ErrUpstreamReset)
	}
}

// TestSlowReadersDoNotBlockOthers: answers that nobody reads fill their own
// windows and not the connection's.
func TestSlowReadersDoNotBlockOthers(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		var written atomic.Int64
		p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := 1
			if r.Header.Get("Much") != "" {
				n = 1000
			}
			for range n {
				if _, err := w.Write(make([]byte, largeChunk)); err != nil {
					return
				}
				written.Add(largeChunk)
			}
		}))
		const slow = 20
		for range slow {
			r := post("{}")
			r.Header.Set("Much", "yes")
			a, err := p.roundTrip(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
		}
		wait.Until(t, "their windows are full", func() bool { return written.Load() >= slow*(answerWindow-largeChunk) })
		for range 10 {
			if _, body := p.mustDo(t, post("{}")); len(body) != largeChunk {
				t.Fatalf("%d bytes", len(body))
			}
		}
	})
}
