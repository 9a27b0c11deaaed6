package tests

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// `caddy reload` under load, several times: no request fails, no tunnel is
// dropped, and streams run through all of it.
func TestReloadUnderLoad(t *testing.T) {
	r := newRig(t, harness.Options{})
	release := make(chan struct{})
	r.serve(t, "tokens", upstream.SlowTokens(5*time.Millisecond, release))
	r.serve(t, "m", upstream.Echo)
	since := tunnelSince(t, r)

	var streams []*harness.Stream
	for range 5 {
		s := r.Stream(t, harness.Chat("tokens", `,"stream":true`))
		s.Expect(t, upstream.Role("tokens"))
		streams = append(streams, s)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var count counts
	const workers = 6
	for worker := range workers {
		wg.Go(func() { load(ctx, t, r, worker, &count) })
	}
	sites := []string{"keep_alive 7s", "connect_wait 5s", "max_body 16MiB", ""}
	for i, site := range sites {
		r.Configure(t, harness.Options{Site: site})
		before := count.served.Load()
		r.Reload(t)
		harness.Poll(t, limit, fmt.Sprintf("requests being served after reload %d", i), nilContext(func() error {
			if n := count.served.Load() - before; n < 50 {
				return fmt.Errorf("only %d", n)
			}
			return nil
		}))
	}
	stop()
	wg.Wait()
	served, repeated := count.served.Load(), count.repeated.Load()
	if n := len(r.up.Requests()) - len(streams); n != int(served) {
		t.Errorf("the upstream received %d requests, %d were served", n, served)
	}
	if repeated > int64(len(sites)*workers) { // a reload can reset the connection that each has
		t.Errorf("of %d requests %d were sent again: more than Caddy alone causes", served, repeated)
	}
	close(release)
	for i, s := range streams {
		rest, err := s.Rest()
		if err != nil || !strings.HasSuffix(rest, upstream.Finish("tokens", "stop")+upstream.Done) {
			t.Errorf("stream %d over the reloads ended with %q, %v", i, clip(rest), err)
		}
		for n := 1; n <= strings.Count(rest, `"content":"token`); n++ {
			if !strings.Contains(rest, fmt.Sprintf(`"token%d "`, n)) {
				t.Errorf("stream %d lost token %d", i, n)
				break
			}
		}
	}
	keepsTunnel(t, r, since)
	t.Logf("%d requests were served, %d of them sent again", served, repeated)
}

// load sends requests until ctx ends. Half of the workers use a new connection for each. On a reload, Caddy's
// listener resets a few connections that it has accepted and not yet read from, with `respond` alone about 3
// of 1000 at this load: with SO_REUSEPORT, the kernel drops connections that wait on the old socket. Clients,
// such as the SDKs, send such a request again, because no server has read it. load does so, too, and counts at
// the upstream that none of these requests had reached it.
func load(ctx context.Context, t *testing.T, r *rig, worker int, count *counts) {
	body := harness.Chat("m", "")
	want := upstream.Completion("m", fmt.Sprintf("%d bytes", len(harness.Chat(up("m"), ""))))
	for ctx.Err() == nil {
		var a harness.Answer
		var err error
		for try := range 3 {
			req := r.Request(context.Background(), t, http.MethodPost, "/v1/chat/completions", body)
			req.Close = worker%2 == 1
			if try > 0 {
				count.repeated.Add(1)
			}
			if a, err = r.Send(req); err == nil {
				break
			}
			r.HTTP.CloseIdleConnections() // others may have been closed at the same time
		}
		count.served.Add(1)
		if err != nil || a.Err != nil || a.Status != 200 || a.Body != want {
			t.Errorf("a request under load: status %d, %v, %v, %s", a.Status, err, a.Err, a.Body)
			return
		}
	}
}

// counts are the results of the load.
type counts struct{ served, repeated atomic.Int64 }

// tunnelSince returns when the connector's tunnel was made.
func tunnelSince(t *testing.T, r *rig) string {
	t.Helper()
	var list []struct{ State, Since string }
	r.Manage(t, http.MethodGet, "/connectors", nil, &list)
	if len(list) != 1 || list[0].State != "online" || list[0].Since == "" {
		t.Fatalf("connectors: %+v", list)
	}
	return list[0].Since
}

// keepsTunnel fails the test if the connector has another tunnel than before.
func keepsTunnel(t *testing.T, r *rig, before string) {
	t.Helper()
	if got := tunnelSince(t, r); got != before {
		t.Errorf("the tunnel was replaced: since %s, before %s", got, before)
	}
}

// A configuration that cannot be started is refused, and the running one stays.
func TestFailedReload(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Echo)
	since := tunnelSince(t, r)
	good := read(t, r.Caddyfile)
	for _, bad := range []string{
		strings.Replace(string(good), "storage bolt", "storage etcd", 1),
		strings.Replace(string(good), "storage bolt "+r.Dir, "storage bolt /proc/nosuch", 1),
		strings.Replace(string(good), "listen "+r.UDP, "listen 192.0.2.1:1", 1),
	} {
		must(t, os.WriteFile(r.Caddyfile, []byte(bad), 0o600))
		if out, err := r.Caddy("reload", "--config", r.Caddyfile, "--address", string(r.Admin)).CombinedOutput(); err == nil {
			t.Errorf("a bad configuration was accepted: %s", out)
		}
		r.HTTP.CloseIdleConnections()
		harness.Poll(t, limit, "an answer after the failed reload", func(ctx context.Context) error {
			// Caddy may have accepted this connection with the server of the bad configuration, and reset it.
			a, err := r.Send(r.Request(ctx, t, http.MethodPost, "/v1/chat/completions", harness.Chat("m", "")))
			if err == nil && a.Status != http.StatusOK {
				t.Errorf("after the failed reload: status %d, %s", a.Status, a.Body)
			}
			return err
		})
	}
	keepsTunnel(t, r, since)
	r.Configure(t, harness.Options{Site: "keep_alive 1s"})
	r.Reload(t)
	served(t, r.Post(t, harness.Chat("m", "")), "after the good reload")
}
