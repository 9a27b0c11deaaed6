package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// stopTime is how long a gateway without etcd may take to stop once no request runs: it waits for
// etcd for 2 s in all.
const stopTime = 8 * time.Second

// stops waits for the end of the gateway.
func (g *gateway) stops(t *testing.T) {
	t.Helper()
	begun := time.Now()
	g.Process.WaitExit(t, limit)
	if took := time.Since(begun); took > stopTime {
		t.Errorf("%s has stopped after %v", g.name, took)
	}
}

// TestStopWithoutEtcd: a gateway stops soon while etcd is down. What it has counted is in its own
// file, and all gateways have it once it has started again.
func TestStopWithoutEtcd(t *testing.T) {
	t.Parallel()
	etcd := start(t, 1)
	a, b := startGateway(t, "a", etcd.urls()...), startGateway(t, "b", etcd.urls()...)
	a.up.Handle("", upstream.JSON(counted))
	_, key := a.Key(t, "key", "*")
	client := a.Client(t, key)
	a.await(t, client, http.StatusOK, "the model at a")
	const some = 5
	a.send(t, client, some)
	harness.Poll(t, limit, "the usage in the file of a", func(ctx context.Context) error {
		got, err := a.saved(ctx, t)
		if err == nil && got != of(1+some) {
			err = fmt.Errorf("%+v", got)
		}
		return err
	})
	etcd[0].Kill()
	a.send(t, client, some)
	a.Process.Signal(t, syscall.SIGTERM)
	a.stops(t)
	if got, err := a.saved(t.Context(), t); err != nil || got != of(1+2*some) {
		t.Errorf("a has saved %+v, %v", got, err)
	}
	etcd[0].start(t)
	etcd.wait(t)
	a.Restart(t)
	a.end(t) // it has published all
	harness.Poll(t, limit, "the usage at b", func(context.Context) error {
		if got := b.usage(t); got != of(1+2*some) {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
}

// TestStopUnderLoad: a gateway that stops while etcd is down accepts nothing more, but lets a request
// finish.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	etcd := start(t, 1)
	g := startGateway(t, "a", etcd.urls()...)
	_, key := g.Key(t, "key", "*")
	client := g.Client(t, key)
	g.await(t, client, http.StatusOK, "the model")
	g.up.Handle("stream", upstream.SlowTokens(50*time.Millisecond, nil))
	g.Manage(t, http.MethodPut, "/deployments/stream", map[string]any{"connector": "box-a", "model": "stream"}, nil)
	stream := g.Client(t, key).Stream(t, harness.Chat("stream", `,"stream":true`))
	etcd[0].Kill()
	g.Process.Signal(t, syscall.SIGTERM)
	harness.Poll(t, limit, "the end of accepting", func(ctx context.Context) error {
		_, err := client.Send(client.Request(ctx, t, http.MethodPost, "/v1/chat/completions", harness.Chat("m-a", "")))
		if err == nil {
			return errors.New("a request is answered")
		}
		return nil
	})
	for range 10 {
		if _, err := stream.Next(); err != nil {
			t.Fatalf("the stream: %v", err)
		}
	}
	stream.Close()
	g.stops(t)
}
