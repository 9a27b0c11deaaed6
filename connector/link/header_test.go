package link

import (
	"net/http"
	"testing"
)

func TestHasMediaType(t *testing.T) {
	for value, want := range map[string]bool{
		"text/event-stream": true, "TEXT/Event-Stream": true, " text/event-stream ; charset=utf-8": true,
		"text/event-streams": false, "text/html": false, "": false, "; text/event-stream": false,
	} {
		if got := HasMediaType(http.Header{"Content-Type": {value}}, "text/event-stream"); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
	if HasMediaType(nil, "text/event-stream") {
		t.Error("a header without a Content-Type")
	}
}
