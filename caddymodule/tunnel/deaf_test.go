package tunnel

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// deafWindow is all that a deaf connector takes of a stream.
const deafWindow = 1 << 10

// deaf connects a connector that sends a hello and many pings, and reads neither its control stream
// nor its requests.
func (g *testGateway) deaf(t *testing.T, id string, pings int) {
	t.Helper()
	config := link.ConnectorQUIC(0)
	config.InitialStreamReceiveWindow, config.MaxStreamReceiveWindow = deafWindow, deafWindow
	conn, err := g.connectionWith(t.Context(), g.socket(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(link.CloseNone, "") })
	stream, err := conn.OpenStreamSync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	control := link.NewControl(stream)
	_ = control.Send(hello(id))
	for range pings {
		_ = control.Send(link.Ping{})
	}
}

// TestDeafControlStream: a connector that wants answers, and takes none, is cut.
func TestDeafControlStream(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		g := newGateway(t, Options{})
		g.connect(t, "con_other", echo).beats()
		at := time.Now()
		g.deaf(t, "con_deaf", messagesAtOnce)
		g.mustSession(t, "con_deaf")
		for len(g.Sessions()) > 1 {
			if time.Since(at) > sendTimeout+6*soon {
				t.Fatal("it stays")
			}
			if body, err := g.do(t, "con_other", "hi"); body != "hi" || err != nil {
				t.Fatalf("the other: %q, %v", body, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		wait.Until(t, "nothing is left of it", func() bool { return g.held() == 1 })
	})
}

// TestDeafRequestStreams: requests that a connector does not read end with their
// clients, leave nothing behind, and delay no other request.
func TestDeafRequestStreams(t *testing.T) {
	overBothReal(t, func(t *testing.T, newGateway gatewayMaker) {
		const requests = 300
		g := newGateway(t, Options{})
		g.connect(t, "con_other", echo)
		g.deaf(t, "con_deaf", 0)
		s := g.mustSession(t, "con_deaf")
		if _, err := g.do(t, "con_other", "hi"); err != nil {
			t.Fatal(err)
		}
		before := runtime.NumGoroutine()
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		body := strings.Repeat("x", 64<<10)
		var all sync.WaitGroup
		for range requests {
			all.Go(func() {
				if _, err := send(ctx, s, body); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a request ended with %v", err)
				}
			})
		}
		for ctx.Err() == nil {
			if body, err := g.do(t, "con_other", "hi"); body != "hi" || err != nil {
				t.Fatalf("the other: %q, %v", body, err)
			}
		}
		all.Wait()
		wait.Until(t, "nothing is left of them", func() bool {
			return s.Info().Active == 0 && runtime.NumGoroutine() < before+20
		})
	})
}
