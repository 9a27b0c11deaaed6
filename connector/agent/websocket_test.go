package agent

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// TestWebSocketMeetsStrangers: each other kind of server has its error and fix.
func TestWebSocketMeetsStrangers(t *testing.T) {
	html := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>Welcome to the hotel")
	}
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		want    []string
	}{
		"captive portal": {html, []string{
			"a web page answers in place of the gateway (status 200)",
			"fix=\"this network may require a sign-in",
		}},
		"portal redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://portal", http.StatusFound)
		}, []string{"a web page answers in place of the gateway (status 302)"}},
		"no such route": {http.NotFound, []string{"the server does not accept tunnels (status 404)", "model_gateway"}},
		"starting": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) },
			[]string{"not ready, or busy (status 503)"},
		},
		"proxy": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(407) },
			[]string{"put them into HTTPS_PROXY"},
		},
		"forbidden": {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) },
			[]string{"refused with status 403"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := startRealGateway(t)
			stranger := httptest.NewServer(test.handler)
			defer stranger.Close()
			g.token.URL = stranger.URL
			a := startReal(t, g, func(a *instance) { a.config.transport = config.TransportWebSocket })
			for _, want := range test.want {
				wait.Until(t, want, func() bool { return strings.Contains(a.log.String(), want) })
			}
		})
	}
}

func TestWebSocketMeetsAnotherGateway(t *testing.T) {
	g, other := startRealGateway(t), startRealGateway(t)
	g.token.URL = other.web.URL
	a := startReal(t, g, func(a *instance) { a.config.transport = config.TransportWebSocket })
	want := "level=ERROR msg=\"connector stopped\" reason=\"dialing " + other.web.URL + link.WebSocketPath + ": " +
		link.ErrPin.Error()
	wait.Until(t, want, func() bool { return strings.Contains(a.log.String(), want) })
}
