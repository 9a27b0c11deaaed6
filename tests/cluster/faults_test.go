package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/harness"
)

// TestAllMembersDown stops all members while a write and a watcher wait.
func TestAllMembersDown(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("slow")
	}
	all := start(t, 3)
	var ways []*proxy
	var urls []string
	for _, s := range all {
		p := newProxy(t, s)
		ways, urls = append(ways, p), append(urls, p.url)
	}
	kv := open(t, urls...)
	watcher, err := kv.Watch(t.Context(), store.Span{}, 0)
	must(t, err)
	for _, s := range all {
		s.Kill()
	}
	for name, call := range map[string]func(context.Context) error{
		"get": func(ctx context.Context) error { _, err := kv.Get(ctx, "a"); return err },
		"txn": func(ctx context.Context) error {
			_, err := kv.Txn(ctx, store.Txn{Then: []store.Op{store.Put("a", nil)}})
			return err
		},
		"lease": func(ctx context.Context) error { _, err := kv.(store.Leaser).Lease(ctx, time.Minute); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := call(ctx)
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
			strings.Contains(err.Error(), "the change may have been made") != (name == "txn") {
			t.Errorf("%s without a member: %v", name, err)
		}
		cancel()
	}
	written := make(chan int64)
	go func() {
		result, err := kv.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put("b", nil)}})
		if err != nil || !result.Succeeded {
			t.Errorf("a write that waits: %+v, %v", result, err)
		}
		written <- result.Revision
	}()
	// With the default pauses of gRPC, this number of attempts would take many minutes.
	const enough = 20
	for _, p := range ways {
		harness.Poll(t, patience, "an attempt to connect", func(context.Context) error {
			if n := p.dialed.Load(); n < enough {
				return fmt.Errorf("%d attempts, not yet %d", n, enough)
			}
			return nil
		})
	}
	for _, s := range all {
		s.start(t)
	}
	all.wait(t)
	revision := <-written
	for reached := int64(0); reached < revision; {
		batch, err := watcher.Next(t.Context())
		must(t, err)
		reached = batch.Revision
	}
}
