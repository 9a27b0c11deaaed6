package tunnel

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

// syncBuffer is a log for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestRefusedHellosDoNotFillTheLog: however many hellos a stranger sends, and
// whatever is in them, the log has some short lines. Nobody authenticates a hello
// that is not well-formed.
func TestRefusedHellosDoNotFillTheLog(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		var log syncBuffer
		var mu sync.Mutex
		longest := 0
		g := newGateway(t, Options{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Authenticate: func(_ context.Context, id, _ string) (Connector, error) {
				mu.Lock()
				defer mu.Unlock()
				longest = max(longest, len(id))
				return Connector{}, context.Canceled
			},
		})
		const hellos = 20
		var all sync.WaitGroup
		for i := range hellos {
			all.Go(func() {
				h := hello(strings.Repeat("x", 200))
				want := link.DenyCredentials
				if i%2 == 0 {
					h.Connector, want = strings.Repeat("\xff", 10_000), link.DenyHello
				}
				_, err := g.dial(t, g.socket(t), h, echo)
				if deny, ok := err.(link.Deny); !ok || deny.Code != want {
					t.Errorf("refused with %v, not %s", err, want)
				}
			})
		}
		all.Wait()
		text := log.String()
		if n := strings.Count(text, "\n"); n == 0 || n > hellos/2 || len(text) > 300*n {
			t.Errorf("%d lines with %d bytes:\n%.2000s", n, len(text), text)
		}
		if strings.Contains(text, "xxx") {
			t.Error("the log has an id that cannot be one")
		}
		if mu.Lock(); longest != 200 {
			t.Errorf("an id of %d bytes was authenticated", longest)
		}
		mu.Unlock()
	})
}

func TestLoggedID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"con_01234567890abcdefghijklmnop": "con_01234567890abcdefghijklmnop",
		"con_1":                           "con_1",
		"":                                "invalid",
		"con-1":                           "invalid",
		"con_1\n":                         "invalid",
		"CON_1":                           "invalid",
		"<b>":                             "invalid",
		strings.Repeat("a", 41):           "invalid",
	} {
		if got := loggedID(id).Value.String(); got != want {
			t.Errorf("%q is logged as %q, not %q", id, got, want)
		}
	}
}
