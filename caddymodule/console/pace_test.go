package console

import (
	"net/http"
	"testing"
	"testing/synctest"
)

// The forms of a user are paced like its requests to the API.
func TestFormsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		b := h.in(h.user(store0, "ada"))
		for range 200 {
			if w := b.post("/console/keys/none/enable"); w.Code != http.StatusNotFound {
				t.Fatalf("status %d", w.Code)
			}
		}
		w := b.post("/console/keys/none/enable")
		if b.refused(w, http.StatusTooManyRequests, "oo many changes"); w.Header().Get("Retry-After") != "1" {
			t.Errorf("headers %v", w.Header())
		}
		b.page("/console/keys")
	})
}
