package agent

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

func offer(version string) *link.Offer {
	return &link.Offer{Version: version, URL: "https://gw.example.com/a", Size: 1, SHA256: strings.Repeat("00", 32)}
}

// The status and the log show a newer version. An invalid offer is ignored.
func TestOffer(t *testing.T) {
	for _, tt := range []struct {
		offer       *link.Offer
		status, log string
	}{
		{nil, "", ""},
		{offer("0.9.0"), "", ""},
		{offer("0.9.1"), "0.9.1", "msg=\"0.9.1 is available: run `connector update`\""},
		{offer("1\x1b"), "", "the gateway offers an invalid connector"},
	} {
		g := startGateway(t)
		g.set(func() { g.offer = tt.offer })
		a := startAgent(t, g, "http://127.0.0.1:1", func(a *instance) { a.Version = "0.9.0" })
		wait.Until(t, "the tunnel", func() bool { return a.Status().State == StateOnline })
		if got := a.Status().Tunnel.NewerVersion; got != tt.status {
			t.Errorf("%+v: the status has %q", tt.offer, got)
		}
		if log := a.log.String(); !strings.Contains(log, tt.log) || tt.log == "" && strings.Contains(log, "available") {
			t.Errorf("%+v: the log is\n%s", tt.offer, log)
		}
	}
}

// A dry run returns the offer, and does not replace the tunnel.
func TestAsk(t *testing.T) {
	g := startGateway(t)
	g.set(func() { g.offer = offer("0.9.1") })
	c := g.config(map[string]string{"m": "http://127.0.0.1:1"})
	welcome, err := Ask(t.Context(), c, "0.9.0")
	if err != nil || welcome.Offer == nil || *welcome.Offer != *g.offer || g.count() != 0 {
		t.Errorf("%+v, %v, %d hellos", welcome, err, g.count())
	}
	g.set(func() {
		invalid := *g.offer
		invalid.Size, g.offer = 0, &invalid
	})
	if _, err := Ask(t.Context(), c, "0.9.0"); err == nil || !strings.Contains(err.Error(), "its archive has 0 bytes") {
		t.Errorf("an invalid offer: %v", err)
	}
}

// With UntilReplaced, an agent ends when another process has taken its tunnel over.
func TestUntilReplaced(t *testing.T) {
	g := startGateway(t)
	a := startAgent(t, g, "http://127.0.0.1:1", func(a *instance) { a.UntilReplaced = true })
	wait.Until(t, "the tunnel", func() bool { return a.Status().State == StateOnline })
	g.session().close(link.CloseReplaced)
	if err := wait.For(t, a.result, "the agent's end"); err != nil || g.count() != 1 {
		t.Errorf("Run returned %v after %d hellos", err, g.count())
	}
}
