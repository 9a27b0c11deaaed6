package upstream

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// The log gets one line a second, however many requests are refused.
func TestLogsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := NewProxy(Set{}, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		refuse := func() {
			w := &recorder{}
			if p.ServeHTTP(w, httptest.NewRequest("GET", "http://unknown/v2", nil)); w.aborted != link.ErrRefused {
				t.Errorf("aborted %v", w.aborted)
			}
		}
		for range 1000 {
			refuse()
		}
		if n := strings.Count(log.String(), "refusing a request"); n != 1 {
			t.Errorf("%d lines for 1000 requests", n)
		}
		time.Sleep(time.Second)
		refuse()
		if text := log.String(); strings.Count(text, "refusing a request") != 2 || !strings.Contains(text, "left_out=999") {
			t.Errorf("a second later:\n%s", text)
		}
	})
}
