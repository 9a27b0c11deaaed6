package queue_test

import (
	"context"
	"testing"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/queue"
)

// Requests of a deployment enter elsewhere while it has a limit.
func TestShare(t *testing.T) {
	h := newHall(t, 0)
	elsewhere, left := 0, 0
	h.Share(func(context.Context, queue.Request) (queue.Permit, error) {
		elsewhere++
		return queue.RemotePermit(true, limits.Usage{}, func(limits.Used) { left++ }), nil
	})
	for i, limit := range []int64{0, 1} {
		h.limit.Store(limit)
		permit, err := h.Enter(t.Context(), name(), client("a"), queue.Bounds{})
		if err != nil || permit.Waited() != (i == 1) || elsewhere != i {
			t.Errorf("with a limit of %d: waited: %t, %v, %d enters elsewhere", limit, permit.Waited(), err, elsewhere)
		}
		if permit.Leave(); left != i {
			t.Errorf("with a limit of %d: %d have left elsewhere", limit, left)
		}
	}
}
