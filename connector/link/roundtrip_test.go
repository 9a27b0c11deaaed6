package link

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// echo answers with the request's body, in chunks.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(w, r.Body)
})

func TestRequestArrives(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		seen := make(chan *http.Request, 1)
		p := newPair(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(b))
			seen <- r
		}))
		r := post(`{"model":"a"}`)
		r.URL = &url.URL{Path: "/v1/models/a/b c", RawPath: "/v1/models/a%2Fb%20c", RawQuery: "a=b&c=%20"}
		r.Header = http.Header{
			"Accept":          {"text/event-stream"},
			"X-Twice":         {"one", "two"},
			"x-lower":         {"v"},
			"Utf8":            {"grüße"},
			"Connection":      {"close, X-Nominated"},
			"X-Nominated":     {"secret"},
			"Keep-Alive":      {"secret"},
			"Te":              {"secret"},
			"Upgrade":         {"secret"},
			"Authorization":   {"secret"},
			"authorization":   {"secret"},
			"X-Api-Key":       {"secret"},
			"Cookie":          {"secret"},
			"Origin":          {"secret"},
			"Expect":          {"100-continue"},
			"Content-Length":  {"999"},
			"Host":            {"elsewhere"},
			"Proxy-Something": {"v"},
		}
		answer, body := p.mustDo(t, r)
		if answer.StatusCode != 200 || answer.Status != "200 OK" || body != "" {
			t.Errorf("answer %q with body %q", answer.Status, body)
		}
		got := <-seen
		want := http.Header{
			"Accept": {"text/event-stream"}, "X-Twice": {"one", "two"}, "X-Lower": {"v"}, "Utf8": {"grüße"},
			"Content-Length": {"13"}, "Proxy-Something": {"v"},
		}
		for name := range got.Header {
			if !slices.Equal(got.Header[name], want[name]) {
				t.Errorf("header %s = %q, want %q", name, got.Header[name], want[name])
			}
		}
		if len(got.Header) != len(want) {
			t.Errorf("header has %d fields, want %d: %v", len(got.Header), len(want), got.Header)
		}
		b, _ := io.ReadAll(got.Body)
		if got.Method != "POST" || got.Host != "ollama" || got.URL.Path != "/v1/models/a/b c" ||
			got.RequestURI != "/v1/models/a%2Fb%20c?a=b&c=%20" || got.ContentLength != 13 || string(b) != `{"model":"a"}` {
			t.Errorf("got %s %s %s, length %d, body %q", got.Method, got.Host, got.RequestURI, got.ContentLength, b)
		}
	})
}

func TestRequestsThatCannotBeSent(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		p := newPair(t, echo)
		for name, change := range map[string]func(*http.Request){
			"no upstream":         func(r *http.Request) { r.Host = "" },
			"upstream with space": func(r *http.Request) { r.Host = "a b" },
			"line break in value": func(r *http.Request) { r.Header["A"] = []string{"b\r\nC: d"} },
			"bad name":            func(r *http.Request) { r.Header["A b"] = []string{"c"} },
			"bad method":          func(r *http.Request) { r.Method = "GET /x" },
			"bad path":            func(r *http.Request) { r.URL.Path = "v1" },
			"bad query":           func(r *http.Request) { r.URL.RawQuery = "a b" },
			"body too short":      func(r *http.Request) { r.ContentLength++ },
		} {
			t.Run(name, func(t *testing.T) {
				r := post("x")
				change(r)
				if _, _, err := p.do(t, r); err == nil {
					t.Error("no error")
				}
			})
		}
		if _, body := p.mustDo(t, post("still fine")); body != "still fine" {
			t.Errorf("body %q", body)
		}
	})
}

func TestAnswers(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		type answer struct {
			status int
			header map[string]string
			writes []string
		}
		for name, test := range map[string]struct {
			method string
			answer answer
			length int64
		}{
			"known length":         {"POST", answer{200, map[string]string{"Content-Length": "6"}, []string{"abc", "def"}}, 6},
			"chunks":               {"POST", answer{200, nil, []string{"abc", "def"}}, -1},
			"error status":         {"POST", answer{429, map[string]string{"Retry-After": "3"}, []string{"wait"}}, -1},
			"unknown status":       {"POST", answer{599, nil, []string{"?"}}, -1},
			"empty, known length":  {"POST", answer{200, map[string]string{"Content-Length": "0"}, nil}, 0},
			"empty chunks":         {"POST", answer{200, nil, nil}, -1},
			"no content":           {"POST", answer{204, nil, nil}, 0},
			"not modified":         {"GET", answer{304, map[string]string{"Content-Length": "5"}, nil}, 0},
			"head":                 {"HEAD", answer{200, map[string]string{"Content-Length": "5"}, []string{"drop!"}}, 5},
			"head, unknown length": {"HEAD", answer{200, nil, []string{"dropped"}}, -1},
			"larger than a buffer": {
				"POST",
				answer{200, map[string]string{"Content-Length": "100000"}, []string{strings.Repeat("a", 100000)}},
				100000,
			},
			"fills a buffer": {"POST", answer{200, nil, []string{strings.Repeat("a", largeChunk), "b"}}, -1},
			"many small, of length": {
				"POST",
				answer{200, map[string]string{"Content-Length": "2000"}, slices.Repeat([]string{"ab"}, 1000)},
				2000,
			},
		} {
			t.Run(name, func(t *testing.T) {
				p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					for k, v := range test.answer.header {
						w.Header().Set(k, v)
					}
					w.WriteHeader(103) // informational: ignored
					w.WriteHeader(test.answer.status)
					w.WriteHeader(500) // too late
					for _, s := range test.answer.writes {
						if n, err := io.WriteString(w, s); n != len(s) || err != nil {
							t.Errorf("write: %d, %v", n, err)
						}
					}
				}))
				r := post("")
				r.Method = test.method
				a, body := p.mustDo(t, r)
				want := strings.Join(test.answer.writes, "")
				if test.method == "HEAD" {
					want = ""
				}
				if a.StatusCode != test.answer.status || a.ContentLength != test.length || body != want {
					t.Errorf("status %d, length %d, body of %d bytes", a.StatusCode, a.ContentLength, len(body))
				}
				for k, v := range test.answer.header {
					if a.Header.Get(k) != v {
						t.Errorf("header %s = %q", k, a.Header.Get(k))
					}
				}
				if err := <-p.served; err != nil {
					t.Errorf("Serve: %v", err)
				}
			})
		}
	})
}

func TestAnswerHeaderIsCleaned(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h["Connection"] = []string{"keep-alive, x-hop ", "X-Other"}
			h["X-Hop"], h["X-Other"] = []string{"1"}, []string{"1"}
			h["Keep-Alive"], h["Trailer"], h["Upgrade"] = []string{"timeout=5"}, []string{"X-T"}, []string{"x"}
			h["Transfer-Encoding"] = []string{"gzip"}
			h["Bad name"] = []string{"v"}
			h["Bad-Value"] = []string{"a\r\nb"}
			h["Postern-Error"] = []string{"refused"}
			h["postern-body"] = []string{"1"}
			h["Good"] = []string{"v"}
			_, _ = io.WriteString(w, "ok")
		}))
		a, body := p.mustDo(t, post(""))
		if len(a.Header) != 1 || a.Header.Get("Good") != "v" || body != "ok" {
			t.Errorf("header %v, body %q", a.Header, body)
		}
	})
}

func TestLargeBodiesBothWays(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		p := newPair(t, echo)
		size := connectionWindow
		if testing.Short() {
			size = 2 * MaxRequestWindow
		}
		body := strings.Repeat("0123456789abcdef", size/16)
		for _, length := range []int64{int64(size), -1} {
			r := post(body)
			r.ContentLength = length
			if _, got := p.mustDo(t, r); got != body {
				t.Errorf("%d of %d bytes came back, or they have changed", len(got), size)
			}
		}
	})
}

// TestEventsArriveOneByOne: each write is there before the next one is made.
func TestEventsArriveOneByOne(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		next := make(chan struct{})
		p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 3 {
				_, _ = io.WriteString(w, "data: x\n\n")
				<-next
			}
		}))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		a, err := p.roundTrip(ctx, post("{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		buf := make([]byte, 100)
		for range 3 {
			n, err := a.Body.Read(buf)
			if string(buf[:n]) != "data: x\n\n" || err != nil {
				t.Fatalf("read %q, %v", buf[:n], err)
			}
			next <- struct{}{}
		}
		if n, err := a.Body.Read(buf); n != 0 || err != io.EOF {
			t.Fatalf("end: %d, %v", n, err)
		}
	})
}

// TestFlushSendsTheHead: it arrives without a body.
func TestFlushSendsTheHead(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		done := make(chan struct{})
		p := newPair(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			<-done
		}))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		a, err := p.roundTrip(ctx, post("{}"))
		close(done)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		if _, err := io.ReadAll(a.Body); err != nil {
			t.Fatal(err)
		}
	})
}

// failingBody is a body that cannot be read after some bytes.
type failingBody struct {
	left   int
	closed chan struct{}
}

var errBroken = errors.New("broken body")

func (b *failingBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errBroken
	}
	n := min(len(p), b.left)
	b.left -= n
	return n, nil
}

func (b *failingBody) Close() error {
	close(b.closed)
	return nil
}

// TestRequestBodyThatFails: of known length or not, the handler sees no clean end.
func TestRequestBodyThatFails(t *testing.T) {
	overBoth(t, func(t *testing.T, newPair pairing) {
		read := make(chan error, 4)
		p := newPair(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			read <- err
		}))
		for _, length := range []int64{2 << 20, -1} {
			for _, after := range []int{100, 1 << 20} {
				r := post("")
				b := &failingBody{after, make(chan struct{})}
				r.Body, r.ContentLength = b, length
				_, _, err := p.do(t, r)
				wantError(t, err, errBroken)
				<-b.closed
			}
			if err := <-read; err == nil {
				t.Error("the handler saw a clean end of half a body")
			}
		}
	})
}
