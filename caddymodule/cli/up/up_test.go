package up

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/agent"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestUpModelServerErrors(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	tests := []struct{ name, connect, want string }{
		{"nothing there", closedServer(t), "no model server answers at"},
		{"no models", serveModels(t, 200, `{"data":[]}`), "has no models"},
		{"a gateway", serveModels(t, 401, `{}`), "requires an API key"},
		{"a web page", serveModels(t, 200, `<html>`), "not usable as a model server"},
		{"not a URL", "http://a b", "is not the base URL of a model server"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := New(Options{Connect: tt.connect, Listen: "localhost:0"})
			defer u.Stop()
			if _, err := u.Start(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
			if len(u.stops) > 0 {
				t.Error("the gateway was started")
			}
		})
	}
}

// The error of a taken port names it, and the option to choose another one.
func TestUpPortTaken(t *testing.T) {
	taken := strings.TrimPrefix(serveModels(t, 200, `{"data":[{"id":"m"}]}`), "http://")
	u := New(Options{Listen: taken, Program: "caddy"})
	if _, err := u.Start(t.Context()); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), taken) ||
		!strings.HasSuffix(err.Error(), "--listen") {
		t.Errorf("error = %v", err)
	}
}

// If the connector stops, the run ends with an error.
func TestUpConnectorEnds(t *testing.T) {
	for _, end := range []error{errors.New("denied"), nil} {
		u := &Run{agentDone: make(chan error, 1)}
		u.agentDone <- end
		if err := u.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "running the connector") {
			t.Errorf("error = %v", err)
		}
	}
}

// If the connector was removed, the gateway continues for the others.
func TestUpConnectorRemoved(t *testing.T) {
	var messages strings.Builder
	u := &Run{agentDone: make(chan error, 1), Options: Options{Messages: &messages}}
	problem := agent.Problem{Reason: "the gateway closed the tunnel: removed", Fix: "create"}
	u.agentDone <- &agent.FatalError{Problem: problem}
	ctx, stop := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() { waited <- u.Wait(ctx) }()
	select {
	case err := <-waited:
		t.Errorf("it ended with %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	stop()
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if got := messages.String(); !strings.Contains(got,
		"Warning: this process no longer has a connector: the gateway closed the tunnel: removed.") {
		t.Errorf("the warning is %q", got)
	}
}
