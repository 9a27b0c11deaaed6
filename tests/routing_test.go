package tests

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// Two connectors serve at the same time. A changed deployment takes effect with the next request; running
// requests finish on the old route.
func TestReRegisteredDeployment(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	second := upstream.Start(t)
	other := r.Connector(t, "second", second.URL)
	release := make(chan struct{})
	r.up.Handle("first-model", upstream.SlowTokens(5*time.Millisecond, release))
	second.Handle("second-model", upstream.JSON(upstream.Completion("second-model", "from the second")))

	r.Deploy(t, "m", r.con.ID, "", "first-model")
	s := r.Stream(t, harness.Chat("m", `,"stream":true`))
	s.Expect(t, upstream.Role("m"))
	r.Deploy(t, "m", other.Name, "", "second-model")
	for range 5 {
		if a := r.Post(t, harness.Chat("m", "")); a.Body != upstream.Completion("m", "from the second") {
			t.Fatalf("after the change: status %d, %s", a.Status, a.Body)
		}
	}
	close(release)
	rest, err := s.Rest()
	if !strings.HasSuffix(rest, upstream.Finish("m", "stop")+upstream.Done) || err != nil {
		t.Errorf("the stream on the old way ended with %q, %v", clip(rest), err)
	}
	if n := len(r.up.Requests()); n != 1 {
		t.Errorf("the first upstream received %d requests, want 1", n)
	}
}

// Several upstreams of one connector: routes choose by the public name, the
// deployment's own upstream and model win, and each upstream gets its own key.
func TestRoutes(t *testing.T) {
	t.Parallel()
	g := harness.StartInProcess(t, inprocess.Options{})
	a, b := upstream.Start(t), upstream.Start(t)
	for name, u := range map[string]*upstream.Server{"a": a, "b": b} {
		u.Handle("", func(x *upstream.Exchange) {
			upstream.JSON(upstream.Completion(x.Request.Model, name+" "+x.Request.Model))(x)
		})
	}
	const upstreamKey = "upstream-key-5501-xyz"
	g.Hide(upstreamKey)
	keyFile := filepath.Join(g.Dir, "upstream.key")
	must(t, os.WriteFile(keyFile, []byte(upstreamKey+"\n"), 0o600))
	con := g.NewConnector(t, "box", map[string]any{
		"upstreams": map[string]any{
			"a": map[string]any{"base_url": a.URL + "/v1"},
			"b": map[string]any{"base_url": b.URL + "/v1", "api_key_file": keyFile},
		},
		"routes": []map[string]string{
			{"model": "qwen*", "upstream": "a", "upstream_model": "qwen3:8b"},
			{"model": "org/*", "upstream": "a"},
			{"model": "*", "upstream": "b"},
		},
	})
	con.Start(t)
	g.Deploy(t, "qwen-small", con.ID, "", "")
	g.Deploy(t, "org/x:1", con.ID, "", "")
	g.Deploy(t, "anything", con.ID, "", "")
	g.Deploy(t, "qwen-b", con.ID, "b", "")
	g.Deploy(t, "qwen-c", con.ID, "b", "own")
	_, key := g.Key(t, "all", "*")
	c := g.Client(t, key)
	for model, want := range map[string]string{
		"qwen-small": "a qwen3:8b", "org/x:1": "a org/x:1", "anything": "b anything", "qwen-b": "b qwen-b", "qwen-c": "b own",
	} {
		if got := c.Post(t, harness.Chat(model, "")); got.Body != upstream.Completion(model, want) {
			t.Errorf("%s: status %d, %s; want %q", model, got.Status, got.Body, want)
		}
	}
	for _, q := range a.Requests() {
		if v := q.Header.Get("Authorization"); v != "" {
			t.Errorf("upstream a, which has no key, received Authorization: %s", v)
		}
	}
	for _, q := range b.Requests() {
		if v := q.Header.Get("Authorization"); v != "Bearer "+upstreamKey {
			t.Errorf("upstream b received Authorization: %q", v)
		}
	}
}

// Many at once: more than QUIC's default of 100 streams on one tunnel.
func TestManyStreamsOnOneTunnel(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	release := make(chan struct{})
	r.serve(t, "m", upstream.SlowTokens(time.Second, release))
	const n = 250
	var wg sync.WaitGroup
	failed := make(chan string, n)
	for range n {
		wg.Go(func() {
			a, err := r.Send(r.Request(context.Background(), t, http.MethodPost, "/v1/chat/completions",
				harness.Chat("m", `,"stream":true`)))
			if err != nil || a.Err != nil || !strings.HasSuffix(a.Body, upstream.Finish("m", "stop")+upstream.Done) {
				failed <- fmt.Sprintf("status %d, %v, %v, %s", a.Status, err, a.Err, clip(a.Body))
			}
		})
	}
	r.up.WaitRunning(t, n)
	close(release)
	wg.Wait()
	close(failed)
	for f := range failed {
		t.Error(f)
	}
}
