package link

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestPeerStopsReading stops reading at all moments of answers that end in each way. quic-go must not panic in a
// goroutine of its own, and later requests get their answers.
func TestPeerStopsReading(t *testing.T) {
	times := 10_000
	if testing.Short() {
		times = 2_000
	}
	overBoth(t, func(t *testing.T, newPair pairing) {
		ways := []string{"fine", "abort", "cancel", "length", "panic", "large"}
		p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			how := r.Header.Get("How")
			if how == "length" {
				w.Header().Set("Content-Length", "20")
			}
			for range 3 {
				if _, err := io.WriteString(w, "event"); err != nil {
					break
				}
			}
			switch how {
			case "abort":
				w.(*response).Abort(ErrUpstreamReset)
			case "cancel":
				w.(*response).Abort(ErrCancelled)
			case "panic":
				panic(http.ErrAbortHandler)
			case "large":
				_, _ = w.Write(make([]byte, answerWindow))
			}
		}))
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for i := range times / 8 {
					s, err := p.gateway.OpenStreamSync(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.WriteString(s, "GET /v1/models HTTP/1.1\r\nHost: a\r\nHow: "+ways[i%len(ways)]+"\r\n\r\n")
					if i%3 == 0 {
						_ = s.Close()
					}
					_, _ = io.ReadFull(s, make([]byte, rand.IntN(150)))
					if i%2 == 0 {
						Refuse(s, CodeCancelled)
					} else {
						s.CancelRead(CodeNone.wire())
						_ = s.Close()
					}
				}
			})
		}
		clients.Wait()
		r := post("{}")
		r.Header.Set("How", "fine")
		if _, body := p.mustDo(t, r); body != "eventeventevent" {
			t.Errorf("body %q", body)
		}
	})
}

// TestStreamCredit sends more requests than a tunnel has streams, one after another, which end in each way. A stream
// counts until each end has read the other's end.
func TestStreamCredit(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				w.Header().Set("Content-Length", "2")
			}
			switch r.Header.Get("How") {
			case "read":
				_, _ = io.Copy(io.Discard, r.Body)
			case "fail":
				w.(*response).Abort(ErrBusy)
			case "empty":
				w.WriteHeader(http.StatusNoContent)
				return
			}
			_, _ = io.WriteString(w, "ok")
			switch r.Header.Get("How") {
			case "fail later":
				w.(*response).Abort(ErrBusy)
			case "cancel":
				if r.Method != http.MethodGet { // a whole answer is not canceled
					<-r.Context().Done()
				}
			}
		}), 1)
		ways := []string{"read", "unread", "fail", "empty", "fail later", "cancel"}
		for i := range 60 * len(ways) {
			r := post("{}")
			how := ways[i%len(ways)]
			if i%(2*len(ways)) < len(ways) {
				r.Method, r.Body, r.ContentLength = http.MethodGet, nil, 0
			} else if how == "unread" {
				r = post(strings.Repeat("x", 100_000))
			}
			r.Header.Set("How", how)
			if how == "cancel" {
				a, err := p.roundTrip(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				_ = a.Body.Close()
			} else if _, body, err := p.do(t, r); strings.HasPrefix(how, "fail") {
				if !errors.Is(err, ErrBusy) && r.Method != http.MethodGet {
					t.Errorf("request %d: %v", i, err)
				}
			} else if err != nil || how != "empty" && body != "ok" {
				t.Fatalf("request %d, %s: %q, %v", i, how, body, err)
			}
		}
	})
}

// TestEndOfRequestIsNoCancel: the context of a request lasts until its answer ends.
func TestEndOfRequestIsNoCancel(t *testing.T) {
	overBothVirtual(t, func(t *testing.T, newPair pairing) {
		p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			time.Sleep(time.Minute / 4)
			if string(body) != "{}" || errors.Join(err, r.Context().Err()) != nil {
				t.Errorf("body %q, %v, %v", body, err, r.Context().Err())
			}
			_, _ = io.WriteString(w, "ok")
		}))
		if _, body := p.mustDo(t, post("{}")); body != "ok" {
			t.Errorf("body %q", body)
		}
	})
}

// A handler can end the read of a body that does not arrive, and still answers.
func TestStopReading(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		reading := make(chan struct{})
		p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			read := make(chan error, 1)
			go func() {
				_, _ = io.ReadFull(r.Body, make([]byte, 4))
				close(reading)
				_, err := r.Body.Read(make([]byte, 4))
				read <- err
			}()
			<-reading
			w.(*response).StopReading()
			if err := <-read; err == nil || err == io.EOF {
				t.Errorf("the read ended with %v", err)
			}
			_, _ = io.WriteString(w, "early")
		}))
		s, err := p.gateway.OpenStreamSync(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(s, "POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nsome")
		answer, err := http.ReadResponse(bufio.NewReader(s), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(answer.Body); string(body) != "early" || err != nil {
			t.Errorf("answer %q, %v", body, err)
		}
	})
}
