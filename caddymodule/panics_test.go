package caddymodule

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/rig/caught"
)

// After a panic, a handler answers with an error, or aborts the connection if the answer has begun.
func TestPanicOfHandler(t *testing.T) {
	for name, c := range map[string]struct {
		serve  func(w http.ResponseWriter)
		fail   func(http.ResponseWriter)
		answer string // a part of the answer; "": the connection is aborted
		logged bool
	}{
		"a page": {func(http.ResponseWriter) { panic(caught.Secret) }, failText, errCrashed, true},
		"the API": {
			func(w http.ResponseWriter) { w.Header().Set("X-Any", "1"); panic(caught.Secret) }, failJSON,
			`{"error":"the gateway failed`, true,
		},
		"it has begun": {func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, "some text")
			_ = http.NewResponseController(w).Flush()
			panic(caught.Secret)
		}, failText, "", true},
		"an abort": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, failText, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			log := caught.New()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_ = recovered(log.Logger, w, func(w http.ResponseWriter) error { c.serve(w); return nil }, c.fail)
			}))
			defer server.Close()
			var text []byte
			response, err := http.Get(server.URL)
			if err == nil {
				text, err = io.ReadAll(response.Body)
				_ = response.Body.Close()
			}
			switch {
			case c.answer == "" && err == nil:
				t.Errorf("the answer looks complete: %s", text)
			case c.answer != "" && (err != nil || response.StatusCode != http.StatusInternalServerError ||
				!strings.Contains(string(text), c.answer)):
				t.Errorf("%v: %s", err, text)
			}
			if !c.logged && log.String() != "" {
				t.Errorf("logged %s", log)
			} else if c.logged {
				log.Expect(t, "serving a request", 1)
			}
		})
	}
}
