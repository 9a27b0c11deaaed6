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
	var served atomic.Int64
	failures := make(chan string, 1000)
	for worker := range 6 {
		wg.Go(func() { load(ctx, t, r, worker, &served, failures) })
	}
	for i, site := range []string{"keep_alive 7s", "connect_wait 5s", "max_body 16MiB", ""} {
		r.Configure(t, harness.Options{Site: site})
		before := served.Load()
		r.Reload(t)
		time.Sleep(300 * time.Millisecond)
		if n := served.Load() - before; n < 10 {
			t.Errorf("reload %d: only %d requests were served meanwhile", i, n)
		}
	}
	stop()
	wg.Wait()
	close(failures)
	for f := range failures {
		t.Error(f)
	}
	close(release)
	for i, s := range streams {
		rest, err := s.Rest()
		if err != nil || !strings.HasSuffix(rest, upstream.Finish("tokens", "stop")+upstream.Done) {
			t.Errorf("stream %d over the reloads ended with %q, %v", i, clip(rest), err)
		}
		for n := 1; n <= strings.Count(rest, "token")-2; n++ {
			if !strings.Contains(rest, fmt.Sprintf(`"token%d "`, n)) {
				t.Errorf("stream %d lost token %d", i, n)
				break
			}
		}
	}
	if got := tunnelSince(t, r); got != since {
		t.Errorf("the tunnel was made anew: since %s, before the reloads %s", got, since)
	}
	t.Logf("%d requests were served", served.Load())
}

// load sends plain and streamed requests until ctx ends.
func load(ctx context.Context, t *testing.T, r *rig, worker int, served *atomic.Int64, failures chan<- string) {
	more := ""
	if worker%2 == 1 {
		more = `,"temperature":1`
	}
	want := upstream.Completion("m", fmt.Sprintf("%d bytes", len(harness.Chat(up("m"), more))))
	for ctx.Err() == nil {
		a, err := r.Send(r.Request(context.Background(), t, http.MethodPost, "/v1/chat/completions", harness.Chat("m", more)))
		if err != nil || a.Err != nil || a.Status != 200 || a.Body != want {
			select {
			case failures <- fmt.Sprintf("a request under load: status %d, %v, %v, %s", a.Status, err, a.Err, a.Body):
			default:
			}
		}
		served.Add(1)
	}
}

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

// A configuration that cannot be started is refused, and the running one stays.
func TestFailedReload(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Echo)
	since := tunnelSince(t, r)
	good, err := os.ReadFile(r.Caddyfile)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		strings.Replace(string(good), "storage bolt", "storage etcd", 1),
		strings.Replace(string(good), "storage bolt "+r.Dir, "storage bolt /proc/nosuch", 1),
		strings.Replace(string(good), "listen "+r.UDP, "listen 192.0.2.1:1", 1),
	} {
		if err := os.WriteFile(r.Caddyfile, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := r.Caddy(t, "reload", "--config", r.Caddyfile, "--address", r.Admin).CombinedOutput(); err == nil {
			t.Errorf("a bad configuration was accepted: %s", out)
		}
		if a := r.Post(t, harness.Chat("m", "")); a.Status != 200 {
			t.Errorf("after the failed reload: status %d, %s", a.Status, a.Body)
		}
	}
	if got := tunnelSince(t, r); got != since {
		t.Errorf("the tunnel was made anew: since %s, before %s", got, since)
	}
	r.Configure(t, harness.Options{Site: "keep_alive 1s"})
	r.Reload(t)
	if a := r.Post(t, harness.Chat("m", "")); a.Status != 200 {
		t.Errorf("after the good reload: status %d, %s", a.Status, a.Body)
	}
}
