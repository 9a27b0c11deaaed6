package serve

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
)

// slow is a client that reads rate bytes a second.
type slow struct {
	http.ResponseWriter
	rate int
}

func (s slow) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second / time.Duration(s.rate))
	return s.ResponseWriter.Write(p)
}

// A client must read a whole answer at 64 KiB a minute on average, after a minute of grace.
func TestSlowReaders(t *testing.T) {
	for rate, taken := range map[int]bool{2 << 10: true, 1 << 10: false, 500: false} {
		synctest.Test(t, func(t *testing.T) {
			w := httptest.NewRecorder()
			a := &answer{w: slow{w, rate}}
			body := bytes.Repeat([]byte("x"), 1<<20)
			start := time.Now()
			err := a.whole(200, body)
			if taken != (err == nil) || !taken && (!errors.Is(err, errTooSlow) || !a.mustAbort(1)) {
				t.Errorf("%d bytes a second: %v, %d bytes after %v", rate, err, w.Body.Len(), time.Since(start))
			}
			if !taken && time.Since(start) > 20*time.Minute {
				t.Errorf("%d bytes a second: cut after %v", rate, time.Since(start))
			}
		})
	}
}

// slowBody returns rate bytes each second.
type slowBody struct {
	left io.Reader
	rate int
}

func (s slowBody) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	return s.left.Read(p[:min(len(p), s.rate)])
}

// A client must send a body at the same rate: memory is reserved for the declared size.
func TestSlowBodies(t *testing.T) {
	for rate, whole := range map[int]bool{2 << 10: true, 1 << 10: false, 1: false} {
		synctest.Test(t, func(t *testing.T) {
			const size = 4 << 20
			r := httptest.NewRequest(http.MethodPost, "/", slowBody{bytes.NewReader(make([]byte, size)), rate})
			r.ContentLength = size
			start := time.Now()
			body, derr := readBody(r, size, unbounded, nil)
			switch took := time.Since(start); {
			case whole && (derr != nil || len(body) != size):
				t.Errorf("%d bytes a second: %v, %d bytes", rate, derr, len(body))
			case !whole && (derr == nil || derr.HTTPStatus(dialect.Chat) != http.StatusRequestTimeout):
				t.Errorf("%d bytes a second: %v, %d bytes", rate, derr, len(body))
			case !whole && took > 20*time.Minute:
				t.Errorf("%d bytes a second: refused after %v", rate, took)
			}
		})
	}
}
