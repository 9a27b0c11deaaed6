package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// Without UDP, the tunnel uses the site's own port, with HTTPS and without. Requests, streams and
// cancellations work as over QUIC, and a reload does not end the tunnel.
func TestTunnelOverWebSocket(t *testing.T) {
	t.Parallel()
	for name, https := range map[string]bool{"HTTP": false, "HTTPS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, harness.Options{HTTPS: https})
			r.con = r.NewConnector(t, "web", map[string]any{"upstream": r.up.URL, "transport": "websocket"})
			r.con.Start(t)
			r.serve(t, "m", upstream.Echo)
			r.serve(t, "story", upstream.Events(storyOf(up("story"))...))
			r.serve(t, "tokens", upstream.SlowTokens(5*time.Millisecond, nil))
			var list []struct{ Name, Transport string }
			r.Command(t, &list, "connector", "list")
			transports := map[string]string{}
			for _, c := range list {
				transports[c.Name] = c.Transport
			}
			if transports["web"] != "websocket" || transports["box"] != "quic" {
				t.Errorf("transports %v", transports)
			}
			if a := r.Post(t, harness.Chat("story", `,"stream":true`)); a.Body != lines(storyOf("story")...) || a.Err != nil {
				t.Errorf("status %d, %v, %s", a.Status, a.Err, a.Body)
			}
			served(t, r.Post(t, chatOf("m", 16*mib)), "16 MiB")
			leave(t, r, "tokens", `,"stream":true`)
			r.Configure(t, harness.Options{HTTPS: https, Site: "keep_alive 7s"})
			r.Reload(t)
			served(t, r.Post(t, harness.Chat("m", "")), "after a reload")
			if log := r.con.Process.Log(); strings.Count(log, "msg=connected")+strings.Count(log, `"msg":"connected"`) > 1 {
				t.Errorf("the tunnel was dropped:\n%s", log)
			}
		})
	}
}
