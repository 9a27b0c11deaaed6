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

// stopTime is the maximum time for a gateway without etcd to stop after its last request. It waits 2 s for
// etcd.
const stopTime = 8 * time.Second

// stops waits until the gateway has exited.
func (g *gateway) stops(t *testing.T) {
	t.Helper()
	begun := time.Now()
	g.Process.WaitExit(t, limit)
	if took := time.Since(begun); took > stopTime {
		t.Errorf("%s has stopped after %v", g.name, took)
	}
}

// TestStopWithoutEtcd: a gateway that stops while etcd is down accepts no requests, lets a running one finish,
// and exits soon after. Its usage is in its own file. After its next start, all gateways have it.
func TestStopWithoutEtcd(t *testing.T) {
	t.Parallel()
	etcd := start(t, 1)
	edges, con := startEdges(t, etcd, "a", "b")
	awaitTunnels(t, edges, con)
	a, b := edges["a"], edges["b"]
	a.up.Handle("", upstream.JSON(counted))
	a.up.Handle("stream", upstream.SlowTokens(50*time.Millisecond, nil))
	a.Deploy(t, "stream", "box", "", "stream")
	_, key := a.Key(t, "key", "*")
	client, atB := a.Client(t, key), b.Client(t, key)
	a.await(t, client, http.StatusOK, "the model at a")
	const some = 5
	a.send(t, client, some)
	harness.Poll(t, limit, "the usage in the file of a", func(ctx context.Context) error {
		got, err := a.saved(ctx, t)
		if err == nil && got != usageOf(1+some) {
			err = fmt.Errorf("%+v", got)
		}
		return err
	})
	stream := b.Client(t, key).Stream(t, harness.Chat("stream", `,"stream":true`))
	etcd[0].Kill()
	a.send(t, client, some)
	a.Process.Signal(t, syscall.SIGTERM)
	a.stops(t)
	if got, err := a.saved(t.Context(), t); err != nil || got != usageOf(1+2*some) {
		t.Errorf("a has saved %+v, %v", got, err)
	}
	b.Process.Signal(t, syscall.SIGTERM)
	harness.Poll(t, limit, "the end of accepting", func(ctx context.Context) error {
		_, err := atB.Send(atB.Request(ctx, t, http.MethodGet, "/v1/models", ""))
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
	b.stops(t)
	etcd[0].start(t)
	etcd.wait(t)
	a.Restart(t)
	b.Restart(t)
	a.end(t) // it publishes its usage
	harness.Poll(t, limit, "the usage at b", func(context.Context) error {
		if got := b.usage(t); got.requests != 1+2*some { // and the stream, counted as left by its client
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
}
