package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// A posted event is a CloudEvent as a webhook receives it.
type posted struct {
	SpecVersion string
	ID          string
	Source      string
	Type        string
	Time        time.Time
	Data        map[string]string

	authorization, contentType string
}

// A receiver receives the posts of a webhook.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	events []posted
	fail   int // number of posts to refuse first
	failed []string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		e := posted{authorization: req.Header.Get("Authorization"), contentType: req.Header.Get("Content-Type")}
		if err == nil {
			err = json.Unmarshal(body, &e)
		}
		if err != nil {
			t.Errorf("a post that is no event: %v\n%s", err, body)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.fail > 0 {
			r.fail--
			r.failed = append(r.failed, e.ID)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		r.events = append(r.events, e)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(r.Close)
	return r
}

// list returns the received events.
func (r *receiver) list() []posted {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]posted(nil), r.events...)
}

// refuse makes the receiver answer the next n posts with an error.
func (r *receiver) refuse(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = n
}

// next waits for event number n, which must be of a type, and returns it.
func (r *receiver) next(t *testing.T, n int, name string) posted {
	t.Helper()
	harness.Poll(t, limit, "receiving "+name, nilContext(func() error {
		if len(r.list()) <= n {
			return fmt.Errorf("received: %+v", r.list())
		}
		return nil
	}))
	e := r.list()[n]
	if e.Type != "model_gateway."+name || e.Source != "model_gateway" || e.SpecVersion != "1.0" || e.ID == "" ||
		e.contentType != "application/cloudevents+json" || time.Since(e.Time).Abs() > limit {
		t.Fatalf("event %d is %+v, want %s", n, e, name)
	}
	return e
}

// expectData checks an event's data; a value of "*" means any but none.
func (e posted) expectData(t *testing.T, want map[string]string) {
	t.Helper()
	ok := len(e.Data) == len(want)
	for name, value := range want {
		got := e.Data[name]
		ok = ok && (got == value || value == "*" && got != "")
	}
	if !ok {
		t.Errorf("the data of %s is %v, want %v", e.Type, e.Data, want)
	}
}

// The life of a gateway as a webhook sees it, over reloads and reconnects: each
// event once, in order, and no secret in any of it.
func TestWebhook(t *testing.T) {
	t.Parallel()
	const secret = "Bearer whsec-4f1c7a90be"
	hook := newReceiver(t)
	urlFile := filepath.Join(t.TempDir(), "url")
	must(t, os.WriteFile(urlFile, []byte(hook.URL+"/hooks/path-secret-77\n"), 0o600))
	secretFile := urlFile + ".secret"
	must(t, os.WriteFile(secretFile, []byte(secret+"\n"), 0o600))
	options := harness.Options{Global: fmt.Sprintf(`events {
		on * model_gateway_webhook {file.%s} {
			header Authorization {file.%s}
		}
	}`, urlFile, secretFile)}
	g := harness.Start(t, options)
	g.Hide(secret, "path-secret-77")
	up := upstream.Start(t)

	id, key := g.Key(t, "laptop", "*")
	created := hook.next(t, 0, "key_created")
	created.expectData(t, map[string]string{"account": "default", "key_id": id, "key_name": "laptop"})
	if created.authorization != secret {
		t.Errorf("Authorization is %q", created.authorization)
	}
	con := g.Connector(t, "box", up.URL)
	who := map[string]string{
		"account": "default", "connector_id": con.ID, "connector_name": "box", "transport": "quic",
		"remote": "*",
	}
	hook.next(t, 1, "connector_online").expectData(t, who)
	g.Deploy(t, "m", con.ID, "", "up-m")
	hook.next(t, 2, "deployment_changed").expectData(t,
		map[string]string{"account": "default", "deployment": "m", "upstream": "", "model": "up-m"})

	// A reload and a reconnect emit no event. No event is lost while the receiver refuses posts.
	g.Reload(t)
	old := con.Process
	con.Start(t)
	old.Kill()
	hook.refuse(2)
	g.Revoke(t, id)
	hook.next(t, 3, "key_revoked").expectData(t, created.Data)
	hook.mu.Lock()
	if len(hook.failed) != 2 || hook.failed[0] != hook.events[3].ID || hook.failed[1] != hook.events[3].ID {
		t.Errorf("refused were %v, received then %s", hook.failed, hook.events[3].ID)
	}
	hook.mu.Unlock()

	g.Manage(t, http.MethodDelete, "/deployments/m", nil, nil)
	hook.next(t, 4, "deployment_removed").expectData(t, map[string]string{"account": "default", "deployment": "m"})
	began := time.Now()
	con.Process.Signal(t, syscall.SIGTERM)
	gone := hook.next(t, 5, "connector_offline")
	gone.expectData(t, map[string]string{
		"account": "default", "connector_id": con.ID, "connector_name": "box",
		"since": "*",
	})
	if d := time.Since(began); d < 5*time.Second {
		t.Errorf("that it is offline was told after %v", d)
	}

	pairingEvents(t, g, hook, up.URL)
	all, _ := json.Marshal(hook.list())
	for name, text := range map[string]string{"key": key, "tunnel token": con.Token} {
		if strings.Contains(string(all), text) {
			t.Errorf("the events hold the %s", name)
		}
	}
}

// pairingEvents pairs a device and expects events 6 to 8 of it.
func pairingEvents(t *testing.T, g *harness.Gateway, hook *receiver, upstreamURL string) {
	t.Helper()
	p := startPairing(t, g)
	device := g.Pair(t, "den", p.Code, upstreamURL, "--name", "den")
	requested := hook.next(t, 6, "pairing_requested")
	data := map[string]string{
		"account": "default", "pairing_id": p.ID, "hostname": "den", "os": "*", "version": "*", "remote": "127.0.0.1",
		"fingerprint": "*",
	}
	requested.expectData(t, data)
	g.Command(t, nil, "pairing", "approve", p.Code, "--yes")
	approved := hook.next(t, 7, "pairing_approved")
	data["connector_id"], data["connector_name"], data["decided_by"], data["replaced"] = "*", "den", "*", "false"
	approved.expectData(t, data)
	online := hook.next(t, 8, "connector_online")
	if online.Data["connector_id"] != approved.Data["connector_id"] || online.Data["connector_name"] != "den" {
		t.Errorf("online came %v", online.Data)
	}
	device.Signal(t, syscall.SIGTERM)
	if all, _ := json.Marshal(hook.list()); strings.Contains(string(all), p.Code) {
		t.Error("the events hold the pairing code")
	}
}

// Reloads while events are on their way: each arrives, and once.
func TestWebhookOverReloads(t *testing.T) {
	t.Parallel()
	hook := newReceiver(t)
	options := harness.Options{Global: "events {\n on * model_gateway_webhook " + hook.URL + "\n}"}
	g := harness.Start(t, options)
	want := map[string]int{}
	for range 5 {
		for range 8 {
			id, _ := g.Key(t, fmt.Sprintf("key-%d", len(want)), "*")
			want[id] = 1
		}
		g.Reload(t)
	}
	hook.next(t, len(want)-1, "key_created")
	id, _ := g.Key(t, "last", "*") // its event comes after the repeated ones
	want[id] = 1
	harness.Poll(t, limit, "receiving the last event", nilContext(func() error {
		if all := hook.list(); all[len(all)-1].Data["key_id"] != id {
			return fmt.Errorf("received %d", len(all))
		}
		return nil
	}))
	got := map[string]int{}
	for _, e := range hook.list() {
		got[e.Data["key_id"]]++
	}
	if !maps.Equal(got, want) {
		t.Errorf("received %v, want %v", got, want)
	}
}

// A webhook whose secret is missing is an error at once, and names what is missing.
func TestWebhookWithoutSecret(t *testing.T) {
	t.Parallel()
	g := harness.Start(t, harness.Options{})
	g.Configure(t, harness.Options{Global: `events {
		on * model_gateway_webhook https://127.0.0.1:1/hook {
			header Authorization {env.POSTERN_TEST_NO_SUCH_VARIABLE}
		}
	}`})
	out, err := g.Caddy("validate", "--config", g.Caddyfile, "--adapter", "caddyfile").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "env.POSTERN_TEST_NO_SUCH_VARIABLE") {
		t.Errorf("caddy validate: %v\n%s", err, out)
	}
}

// A receiver that never answers holds up neither writes nor tunnels nor reloads.
func TestHangingWebhookHoldsNobody(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var posts atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		posts.Add(1)
		<-release
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	g := harness.Start(t, harness.Options{Global: "events {\n on * model_gateway_webhook " + server.URL + "\n}"})
	const writes = 10
	for n := range writes / 2 {
		id, _ := g.Key(t, fmt.Sprintf("key-%d", n), "*")
		g.Revoke(t, id)
	}
	g.Connector(t, "box", upstream.Start(t).URL)
	g.Reload(t)
	// The gateway posts one event after the other, and waits 10 s for each answer.
	if n := posts.Load(); n == 0 || n >= writes {
		t.Errorf("the webhook was asked %d times: who wrote has waited for it", n)
	}
}

// People get an outage and its end, with links, and no other events. A test shows the host of the webhook.
func TestWebhookForPeople(t *testing.T) {
	t.Parallel()
	posts := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posts <- r.Header.Get("Click") + " " + string(body)
	}))
	t.Cleanup(server.Close)
	g := harness.Start(t, harness.Options{
		Console: true,
		Global:  "events {\n on * model_gateway_webhook " + server.URL + "/path-secret-78 {\n format ntfy\n }\n}",
	})
	g.Hide("path-secret-78")
	next := func(link, text string) {
		t.Helper()
		select {
		case post := <-posts:
			if to, _, _ := strings.Cut(post, " "); !strings.HasPrefix(to, "http") || !strings.HasSuffix(to, "/console/"+link) ||
				!strings.Contains(post, text) {
				t.Errorf("posted %q, want %q and %q", post, link, text)
			}
		case <-time.After(limit):
			t.Fatalf("no post: %s", text)
		}
	}
	id, _ := g.Key(t, "laptop", "*")
	con := g.Connector(t, "box", upstream.Start(t).URL)
	g.Revoke(t, id)
	var tested []map[string]string
	g.Command(t, &tested, "webhook", "test")
	if want := strings.TrimPrefix(server.URL, "http://"); len(tested) != 1 || tested[0]["host"] != want ||
		tested[0]["format"] != "ntfy" || len(tested[0]) != 2 {
		t.Errorf("tested %v", tested)
	}
	next("home", "This is a test.")
	con.Process.Signal(t, syscall.SIGTERM)
	next("connectors/show?id="+con.ID, "The connector box has been offline since ")
	g.Reload(t)
	con.Start(t)
	next("connectors/show?id="+con.ID, "The connector box is online again.")
	if len(posts) != 0 {
		t.Errorf("also posted: %q", <-posts)
	}
}
