package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

const (
	upgradeClients = 10
	// stories are long streams, which run over an upgrade.
	stories = 4
)

// An upgrade is a gateway with two connectors, over QUIC and over a WebSocket,
// under load.
type upgrade struct {
	*pair
	release chan struct{} // ends the stories
}

func newUpgrade(t *testing.T, o harness.Options) *upgrade {
	t.Helper()
	u := &upgrade{pair: &pair{Gateway: harness.Start(t, o)}, release: make(chan struct{})}
	_, key := u.Gateway.Key(t, "all", "*")
	u.Client = u.Gateway.Client(t, key)
	for i, name := range []string{"a", "b"} {
		u.ups[i] = upstream.Start(t)
		transport := []string{"quic", "websocket"}[i]
		u.cons[i] = u.NewConnector(t, name, map[string]any{"upstream": u.ups[i].URL, "transport": transport})
		u.cons[i].Start(t)
	}
	u.answer()
	return u
}

// answer sets what the models answer.
func (u *upgrade) answer() {
	u.handle("m", func(x *upstream.Exchange) {
		x.Sleep(10 * time.Millisecond)
		if !strings.Contains(string(x.Request.Body), `"stream":true`) {
			upstream.JSON(upstream.Completion("m", "done"))(x)
			return
		}
		upstream.Events(upstream.Role("m"), upstream.Delta("m", "x"), upstream.Delta("m", "y"), upstream.Finish("m", "stop"),
			upstream.Done)(x)
	})
	u.handle("story", upstream.SlowTokens(10*time.Millisecond, u.release))
}

// begin opens the long streams.
func (u *upgrade) begin(t *testing.T) (streams []*harness.Stream) {
	t.Helper()
	for i := range stories {
		s := u.Stream(t, harness.Chat("story", fmt.Sprintf(`,"stream":true,"user":"story-%d"`, i)))
		s.Expect(t, upstream.Role("story"))
		streams = append(streams, s)
	}
	return streams
}

// whole checks that the long streams are.
func (u *upgrade) whole(t *testing.T, streams []*harness.Stream) {
	t.Helper()
	for i, s := range streams {
		rest, err := s.Rest()
		if err != nil || !strings.HasSuffix(rest, upstream.Finish("story", "stop")+upstream.Done) {
			t.Errorf("long stream %d ended with %q, %v", i, clip(rest), err)
		}
		for n := 1; n <= strings.Count(rest, `"content":"token`); n++ {
			if !strings.Contains(rest, fmt.Sprintf(`"token%d "`, n)) {
				t.Errorf("long stream %d lost token %d", i, n)
				break
			}
		}
	}
}

// traffic starts clients; every second one streams. Like the SDKs, they retry a request up to the given number
// of times, if there was no answer or the answer asks for a retry.
func (u *upgrade) traffic(t *testing.T, again int) *traffic {
	l := &traffic{stop: make(chan struct{})}
	for client := range upgradeClients {
		l.wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-l.stop:
					return
				default:
				}
				id := fmt.Sprintf("load-%d-%d", client, i)
				a, err := u.persist(t, harness.Chat("m", fmt.Sprintf(`,"stream":%t,"user":%q`, client%2 == 0, id)), again)
				if err == nil {
					err = a.Err
				}
				l.mu.Lock()
				l.outcomes = append(l.outcomes, outcome{id, client, a.Status, a.Body, err})
				l.mu.Unlock()
			}
		})
	}
	return l
}

func (u *upgrade) persist(t *testing.T, body string, again int) (harness.Answer, error) {
	for try := 0; ; try++ {
		a, err := u.Send(u.Request(context.Background(), t, http.MethodPost, "/v1/chat/completions", body))
		retriable := err != nil || a.Status == http.StatusTooManyRequests || a.Status >= http.StatusInternalServerError
		if !retriable || try == again {
			return a, err
		}
		time.Sleep(min(500*time.Millisecond<<try, 2*time.Second) * time.Duration(75+rand.IntN(50)) / 100)
	}
}

// check ends the load. All requests are answered whole, and the models have seen
// each of them once.
func (u *upgrade) check(t *testing.T, l *traffic) {
	t.Helper()
	streamed, plain := 0, 0
	for _, o := range l.end() {
		switch {
		case o.client%2 == 0 && o.whole():
			streamed++
		case o.client%2 != 0 && o.status == 200 && o.err == nil && o.body == upstream.Completion("m", "done"):
			plain++
		default:
			t.Errorf("request %s: status %d, %v, %s", o.id, o.status, o.err, clip(o.body))
		}
	}
	u.once(t, l)
	seen := 0
	for _, n := range u.received() {
		seen += n
	}
	if want := streamed + plain + stories; seen != want {
		t.Errorf("the models have seen %d requests, %d were answered", seen, want)
	}
	t.Logf("%d streams and %d other answers", streamed, plain)
	if min(streamed, plain) < upgradeClients {
		t.Errorf("that is too little to tell anything")
	}
}

// A newer gateway replaces the old one as `systemctl restart` does: the old process gets SIGTERM, and the new
// one starts when it has exited. The old one answers all requests that it has accepted, the connectors
// reconnect at once, and clients that retry like the SDKs never notice.
func TestGatewayUpgrade(t *testing.T) {
	u := newUpgrade(t, harness.Options{})
	u.deploy(t, "m", 0)
	u.deploy(t, "story", 0)
	streams := u.begin(t)
	l := u.traffic(t, 20)
	l.await(t, upgradeClients)

	old := u.Gateway.Process
	old.Signal(t, syscall.SIGTERM)
	waitClosed(t, u.Gateway)
	if !old.Running() {
		t.Fatal("the old gateway has left its streams")
	}
	close(u.release)
	u.whole(t, streams)
	if code := old.WaitExit(t, limit); code != 0 {
		t.Errorf("the old gateway ended with code %d", code)
	}
	u.Gateway.Restart(t)
	for _, c := range u.cons {
		c.WaitState(t, "online", limit)
		expectQuickRetries(t, c)
	}
	l.await(t, upgradeClients)
	u.check(t, l)
}

// A newer connector is started in parallel with the old one, with the same configuration; then the old one
// gets SIGTERM. No request fails, and none is sent again.
func TestConnectorUpgradeBeside(t *testing.T) {
	for i, transport := range []string{"quic", "websocket"} {
		t.Run(transport, func(t *testing.T) {
			u := newUpgrade(t, harness.Options{})
			con := u.cons[i]
			for _, name := range []string{"m", "story"} {
				u.Manage(t, http.MethodPut, "/deployments/"+name, map[string]any{"connectors": []string{con.Name}}, nil)
			}
			streams := u.begin(t)
			l := u.traffic(t, 0)
			l.await(t, upgradeClients)

			old := con.Process
			con.Launch(t)
			con.Process.WaitLog(t, "connected", limit)
			// the gateway checks for a second whether the old one lives
			for launched := time.Now(); time.Since(launched) < 2*time.Second; {
				l.await(t, upgradeClients)
			}
			old.Signal(t, syscall.SIGTERM)
			old.WaitLog(t, "draining", limit)
			l.await(t, upgradeClients)
			if !old.Running() {
				t.Fatal("the old connector has left its streams")
			}
			close(u.release)
			u.whole(t, streams)
			if code := old.WaitExit(t, limit); code != 0 {
				t.Errorf("the old connector ended with code %d", code)
			}
			l.await(t, upgradeClients)
			u.check(t, l)
		})
	}
}

// restart replaces a connector by a newer one as `systemctl restart` does. The first time, its streams must
// end whole meanwhile.
func (u *upgrade) restart(t *testing.T, l *traffic, con *harness.Connector, streams []*harness.Stream, first bool) {
	t.Helper()
	l.await(t, upgradeClients)
	con.Process.Signal(t, syscall.SIGTERM)
	if first {
		con.Process.WaitLog(t, "draining", limit)
		close(u.release)
		u.whole(t, streams)
	}
	if code := con.Process.WaitExit(t, limit); code != 0 {
		t.Errorf("the old connector ended with code %d", code)
	}
	con.Start(t)
}

// A newer connector replaces the only one as `systemctl restart` does: requests wait for it.
func TestConnectorUpgradeAlone(t *testing.T) {
	for i, transport := range []string{"quic", "websocket"} {
		t.Run(transport, func(t *testing.T) {
			u := newUpgrade(t, harness.Options{Site: "connect_wait 2m"})
			con := u.cons[i]
			for _, name := range []string{"m", "story"} {
				u.Manage(t, http.MethodPut, "/deployments/"+name, map[string]any{"connectors": []string{con.Name}}, nil)
			}
			streams := u.begin(t)
			l := u.traffic(t, 0)
			for round := range 2 {
				u.restart(t, l, con, streams, round == 0)
			}
			l.await(t, upgradeClients)
			u.check(t, l)
		})
	}
}

// Two connectors are restarted one after the other: no request waits.
func TestConnectorUpgradeInTurn(t *testing.T) {
	u := newUpgrade(t, harness.Options{Site: "connect_wait 1ms"})
	u.deploy(t, "m", 0)
	u.deploy(t, "story", 0)
	streams := u.begin(t)
	l := u.traffic(t, 0)
	for i, con := range u.cons {
		u.restart(t, l, con, streams, i == 0)
	}
	l.await(t, upgradeClients)
	u.check(t, l)
}
