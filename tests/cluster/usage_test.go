package cluster

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/harness"
)

// usage is a sum over days, without failed requests.
type usage struct{ requests, tokens int64 }

func (u *usage) add(d store.Usage) {
	u.requests += d.Requests - d.Errors()
	u.tokens += d.InputTokens + d.OutputTokens
}

// counted is the answer to each request.
const counted = `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,` +
	`"finish_reason":"stop",` +
	`"message":{"role":"assistant","content":"yes"}}],"usage":{"prompt_tokens":10,"completion_tokens":3,` +
	`"total_tokens":13}}`

// usageOf returns the usage of a number of answered requests. Each has the same tokens.
func usageOf(requests int64) usage {
	const tokens = 10 + 3 // see counted
	return usage{requests, requests * tokens}
}

// usage returns the usage of the account from this gateway.
func (g *gateway) usage(t *testing.T) (u usage) {
	t.Helper()
	var days []manage.UsageSum
	g.Manage(t, http.MethodGet, "/usage", nil, &days)
	for _, d := range days {
		u.add(d.Usage)
	}
	return u
}

// saved returns the usage in the gateway's own file, from a copy. It returns an error if the
// gateway is writing, which makes two copies differ.
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
	err = st.EachUsage(ctx, store.DefaultAccount, "", "2026-01-01", "2099-12-31", func(r store.UsageRow) error {
		u.add(r.Usage)
		return nil
	})
	return u, err
}

// send sends a number of requests to the gateway's model, and checks that they are answered.
func (g *gateway) send(t *testing.T, client *harness.Client, requests int64) {
	t.Helper()
	for range requests {
		if status := g.chat(t, client); status != http.StatusOK {
			t.Fatalf("status %d at %s", status, g.name)
		}
	}
}
