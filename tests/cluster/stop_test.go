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

// TestStopWithoutEtcd: a gateway that stops while etcd is down accepts nothing more, lets a request
// finish, and ends soon after. What it has counted is in its own file, and all gateways have it once it
// has started again.
func TestStopWithoutEtcd(t *testing.T) {
	t.Parallel()
	etcd := start(t, 1)
	edges, con := startEdges(t, etcd, "a", "b")
	awaitLegs(t, edges, con)
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
		if err == nil && got != of(1+some) {
			err = fmt.Errorf("%+v", got)
		}
		return err
	})
	stream := b.Client(t, key).Stream(t, harness.Chat("stream", `,"stream":true`))
	etcd[0].Kill()
	a.send(t, client, some)
	a.Process.Signal(t, syscall.SIGTERM)
	a.stops(t)
	if got, err := a.saved(t.Context(), t); err != nil || got != of(1+2*some) {
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
	a.end(t) // it has published all
	harness.Poll(t, limit, "the usage at b", func(context.Context) error {
		if got := b.usage(t); got.requests != 1+2*some { // and the stream, as one that its client has left
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
}
