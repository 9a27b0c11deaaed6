//go:build linux

package network

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig/lab"
	"github.com/postern-dev/postern/tests/upstream"
)

// Packet loss on a line of 50 ms makes answers slower and has no other effect.
func TestLoss(t *testing.T) {
	t.Parallel()
	percents, answers := []int{5, 1}, 100
	if testing.Short() {
		percents, answers = percents[:1], 40
	}
	for _, percent := range percents {
		t.Run(fmt.Sprintf("%d percent", percent), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, harness.Options{})
			const model = "essay"
			events := []string{upstream.Role(model)}
			for i := range 40 {
				events = append(events, upstream.Delta(model, fmt.Sprintf("%d: %s", i, strings.Repeat("word ", 40))))
			}
			events = append(events, upstream.Finish(model, "stop"), upstream.Done)
			r.serve(t, model, upstream.Events(events...))
			r.WAN.Set(lab.Conditions{Delay: 25 * time.Millisecond, Loss: float64(percent) / 100})
			start := time.Now()
			r.ask(t, answers, 10, model, strings.Join(events, ""))
			t.Logf("%d streamed answers in %v", answers, time.Since(start).Round(100*time.Millisecond))
			if r.WAN.Lost() == 0 {
				t.Error("the line has lost nothing: nothing was tested")
			}
			if n := r.online(r.box); n != 1 {
				t.Errorf("the connector came online %d times", n)
			}
		})
	}
}

// ask sends n requests for streams, atOnce in parallel, and checks that each answer is want.
func (r *rig) ask(t *testing.T, n, atOnce int, model, want string) {
	t.Helper()
	var askers sync.WaitGroup
	turns := make(chan int)
	for range atOnce {
		askers.Go(func() {
			for i := range turns {
				req := r.Request(t.Context(), t, http.MethodPost, "/v1/chat/completions", harness.Chat(model, `,"stream":true`))
				a, err := r.Send(req)
				switch {
				case err != nil:
					t.Errorf("request %d: %v", i, err)
				case a.Status != http.StatusOK || a.Err != nil || a.Body != want:
					t.Errorf("answer %d: status %d, %v, %d bytes of %d", i, a.Status, a.Err, len(a.Body), len(want))
				}
			}
		})
	}
	for i := range n {
		turns <- i
	}
	close(turns)
	askers.Wait()
}
