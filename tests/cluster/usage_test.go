package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// usage is a sum over days, without requests that failed.
type usage struct{ requests, tokens int64 }

func (u *usage) add(d store.Usage) {
	u.requests += d.Requests - d.Errors()
	u.tokens += d.InputTokens + d.OutputTokens
}

// counted is the answer to each request.
const counted = `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",` +
	`"message":{"role":"assistant","content":"yes"}}],"usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}}`

// of is the usage of answered requests: each has the same tokens.
func of(requests int64) usage {
	const tokens = 10 + 3 // see counted
	return usage{requests, requests * tokens}
}

// usage returns the usage of the account as this gateway shows it.
func (g *gateway) usage(t *testing.T) (u usage) {
	t.Helper()
	var days []manage.UsageSum
	g.Manage(t, http.MethodGet, "/usage", nil, &days)
	for _, d := range days {
		u.add(d.Usage)
	}
	return u
}

// saved returns the usage that this gateway has saved in its own file, from a copy. Equal ones
// are not from the middle of a write.
func (g *gateway) saved(ctx context.Context, t *testing.T) (u usage, err error) {
	var copies [2][]byte
	for i := range copies {
		if copies[i], err = os.ReadFile(filepath.Join(g.Dir, "data", "caddy", "model_gateway", "edge.db")); err != nil {
			return u, err
		}
	}
	if !bytes.Equal(copies[0], copies[1]) {
		return u, errors.New("the file changes")
	}
	path := filepath.Join(t.TempDir(), "edge.db")
	if err := os.WriteFile(path, copies[0], 0o600); err != nil {
		return u, err
	}
	kv, err := store.OpenBolt(path, store.BoltOptions{})
	if err != nil {
		return u, err
	}
	st, err := store.New(kv, store.Options{Edge: g.name})
	if err != nil {
		return u, err
	}
	defer st.Close()
	err = st.EachUsage(ctx, store.DefaultAccount, "2026-01-01", "2099-12-31", nil, func(r store.UsageRow) error {
		u.add(r.Usage)
		return nil
	})
	return u, err
}

// send has the model of the gateway answer so many requests.
func (g *gateway) send(t *testing.T, client *harness.Client, requests int64) {
	t.Helper()
	for range requests {
		if status := g.chat(t, client); status != http.StatusOK {
			t.Fatalf("status %d at %s", status, g.name)
		}
	}
}

// TestUsageKilled: a gateway that is killed loses the usage since it was last saved, and nothing
// before. What it has saved is counted once, at all gateways.
func TestUsageKilled(t *testing.T) {
	t.Parallel()
	etcd := start(t, 1)
	a, b := startGateway(t, "a", etcd.urls()...), startGateway(t, "b", etcd.urls()...)
	for _, g := range []*gateway{a, b} {
		g.up.Handle("", upstream.JSON(counted))
	}
	_, key := a.Key(t, "key", "*")
	atA, atB := a.Client(t, key), b.Client(t, key)
	a.await(t, atA, http.StatusOK, "the model at a")
	b.await(t, atB, http.StatusOK, "the model at b")
	const some = 5
	sentA, keptB := int64(1), int64(1) // requests
	kills := 3
	if testing.Short() {
		kills = 1
	}
	for range kills {
		a.send(t, atA, some)
		b.send(t, atB, some)
		sentA, keptB = sentA+some, keptB+some
		harness.Poll(t, limit, "the usage in the file of b", func(ctx context.Context) error {
			got, err := b.saved(ctx, t)
			if err == nil && got != of(keptB) {
				err = fmt.Errorf("%+v, not %+v", got, of(keptB))
			}
			return err
		})
		b.send(t, atB, some) // these may be lost
		b.Process.Signal(t, syscall.SIGKILL)
		b.Process.WaitExit(t, limit)
		saved, err := b.saved(t.Context(), t)
		if err != nil || saved.requests < keptB || saved.requests > keptB+some || saved != of(saved.requests) {
			t.Fatalf("b has saved %+v of %d requests, the last %d after the save before: %v", saved, keptB+some, some, err)
		}
		keptB = saved.requests
		a.send(t, atA, some)
		sentA += some
		b.Restart(t)
		b.await(t, atB, http.StatusOK, "the model at b")
		keptB++
		if got, want := b.usage(t), of(keptB); got.requests < want.requests {
			t.Errorf("b shows %+v, not at least its own %+v", got, want)
		}
	}
	// What each has saved is in etcd when it has ended, and both show the whole.
	for _, g := range []*gateway{a, b} {
		g.end(t)
		g.Restart(t)
	}
	for _, g := range []*gateway{a, b} {
		harness.Poll(t, limit, "the usage at "+g.name, func(context.Context) error {
			if got, want := g.usage(t), of(sentA+keptB); got != want {
				return fmt.Errorf("%+v, not %+v", got, want)
			}
			return nil
		})
	}
}
