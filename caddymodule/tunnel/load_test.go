package tunnel

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/rig/wait"
)

// TestStampede: connectors that come back all at once, more than may wait for
// their hello, get in one after another.
func TestStampede(t *testing.T) {
	t.Parallel()
	const connectors = 60
	g := newGateway(t, Options{PendingPerAddress: 15})
	var dialing sync.WaitGroup
	for i := range connectors {
		dialing.Go(func() {
			for wait := 10 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
				_, err := g.dial(t, listenLoopback(t), hello(fmt.Sprintf("con_%d", i)), echo)
				if err == nil || t.Context().Err() != nil {
					return
				}
				time.Sleep(rand.N(wait))
			}
		})
	}
	dialing.Wait()
	// Those that came first may be gone again on a slow machine: they send no pings.
	if n := g.Counters().Connected; n < connectors {
		t.Errorf("%d of %d came in", n, connectors)
	}
}

// TestNoStreamIsCutShort: many streamed answers at once, some of whose clients
// leave, and every one that is read to its end is whole.
func TestNoStreamIsCutShort(t *testing.T) {
	overBothReal(t, func(t *testing.T, newGateway gatewayMaker) {
		const clients, events = 16, 20
		each := 100
		if testing.Short() {
			each = 20
		}
		event := "data: " + strings.Repeat("e", 200) + "\n\n"
		g := newGateway(t, Options{})
		g.connect(t, "con_1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			for range events {
				if _, err := io.WriteString(w, event); err != nil {
					return
				}
			}
		})).beats()
		s := g.mustSession(t, "con_1")
		want := strings.Repeat(event, events)
		var all sync.WaitGroup
		for range clients {
			all.Go(func() {
				for i := range each {
					if i%10 == 0 {
						leave(t.Context(), s)
						continue
					}
					if body, err := send(t.Context(), s, "{}"); body != want || err != nil {
						t.Errorf("%d of %d bytes, %v", len(body), len(want), err)
						return
					}
				}
			})
		}
		all.Wait()
		wait.Until(t, "none is active", func() bool { return s.Info().Active == 0 })
	})
}

// leave is a client that goes away at some point of the answer.
func leave(ctx context.Context, s *Session) {
	ctx, cancel := context.WithTimeout(ctx, rand.N(3*time.Millisecond))
	defer cancel()
	_, _ = send(ctx, s, "{}")
}
