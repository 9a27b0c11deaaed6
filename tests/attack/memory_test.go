//go:build linux

package attack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/harness"
)

// machine is the memory of the machine that the gateway believes to be on.
const machine = 512 << 20

// TestSmallMachine: a gateway in a cgroup of 512 MB, without GOMEMLIMIT, is not
// killed by one key whose requests cost it much more than they cost to send, and
// goes on serving another key: every request is answered right, 99 of 100 within a
// second. An attack lasts 4 s, or POSTERN_ATTACK_MINUTES.
func TestSmallMachine(t *testing.T) {
	cgroup := newCgroup(t)
	t.Setenv("GOMEMLIMIT", "")
	if err := os.Unsetenv("GOMEMLIMIT"); err != nil {
		t.Fatal(err)
	}
	g := newTarget(t, harness.Options{Cgroup: cgroup})
	g.bulk(t)
	text := strings.Repeat("x", 2<<10)
	g.endless("event", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9000000000\r\n\r\n",
		`data: {"choices":[{"index":0,"delta":{"content":"`+text+`"}}]}`+"\n\n")
	g.endless("heads", "HTTP/1.1 200 OK\r\nA: "+strings.Repeat("\n", 300<<10)+"\r\n", "A: b\r\n")
	for _, model := range []string{"event", "heads"} {
		g.Deploy(t, model, link.TransportQUIC, "", model)
	}
	g.client = g.Gateway.Client(t, g.key) // keeps its key; the attackers have another
	_, g.key = g.Key(t, "attackers", "*")

	attacks := []string{
		"system messages", "calls", "a model out of reach", "white space", "items",
		"endless streams", "whole answers", "waiting bodies", "slow bodies", "slow readers", "heads",
	}
	each := 4 * time.Second
	if minutes, err := strconv.ParseFloat(os.Getenv("POSTERN_ATTACK_MINUTES"), 64); err == nil {
		each = time.Duration(minutes * float64(time.Minute))
	}
	limit := g.pace(t)
	for _, attack := range attacks {
		t.Run(attack, func(t *testing.T) { g.withstand(t, "costly/"+attack, each, limit) })
	}
}

// pace returns how long 99 of 100 requests may take: a second, or longer on a machine
// that has much else to do, as requests without an attack show.
func (g *target) pace(t *testing.T) time.Duration {
	t.Helper()
	var took []time.Duration
	for range 100 {
		start := time.Now()
		if err := g.right(t, link.TransportWebSocket); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return max(time.Second, 200*took[len(took)/2])
}

// bulk adds a model server with a connector of its own, and the models bulk, which
// takes its time, and large, whose answers are.
func (g *target) bulk(t *testing.T) {
	t.Helper()
	large := `{"id":"x","object":"chat.completion","created":1,"model":"large","choices":[{"index":0,` +
		`"message":{"role":"assistant","content":"` +
		strings.Repeat("x", 20<<20) + `"},"finish_reason":"stop"}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := make([]byte, 200)
		n, _ := io.ReadFull(r.Body, start) // an end before that is fine
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(start[:n]), `"large"`) {
			w.Header().Set("Content-Length", strconv.Itoa(len(large)))
			_, _ = io.WriteString(w, large) // the gateway may have gone
			return
		}
		select {
		case <-r.Context().Done():
		case <-time.After(8 * time.Second):
		}
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},`+
			`"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(server.Close)
	c := g.Connector(t, "bulk", server.URL)
	g.Deploy(t, "bulk", c.ID, "", "bulk")
	g.Deploy(t, "large", c.ID, "", "large")
}

// withstand attacks the gateway for a time, in which all honest requests must be
// answered, and half of them within the limit: the slowest ones depend on what else the
// machine does.
func (g *target) withstand(t *testing.T, attack string, lasts, limit time.Duration) {
	s := g.siege(t, attack, lasts, func(model string) error { return g.right(t, model) }, func() {})
	took := slices.Sorted(slices.Values(slices.Concat(s.served[link.TransportQUIC], s.served[link.TransportWebSocket])))
	p50, p99 := took[len(took)/2], took[(len(took)-1)*99/100]
	t.Logf("%s: at most %d MiB; %d honest requests, p50 %v, p99 %v", s.story, s.highest>>20, len(took),
		p50.Round(time.Millisecond), p99.Round(time.Millisecond))
	if p50 > limit {
		t.Errorf("p50 of honest requests is %v, more than %v", p50, limit)
	}
}

// right sends an honest request, whose answer must tell its length.
func (g *target) right(t *testing.T, model string) error {
	body := harness.Chat(model, "")
	// of the upstream's body, with its own name of the model
	want := fmt.Sprintf(`"content":"%d bytes"`, len("up-")+len(body))
	a, err := g.client.Send(g.client.Request(context.Background(), t, http.MethodPost, "/v1/chat/completions", body))
	switch {
	case err != nil:
		return err
	case a.Err != nil:
		return a.Err
	case a.Status != http.StatusOK || !strings.Contains(a.Body, want):
		return fmt.Errorf("status %d, %s", a.Status, a.Body)
	}
	return nil
}

// newCgroup returns the folder of a cgroup with the memory of a small machine, of
// version 1 or 2.
func newCgroup(t *testing.T) string {
	t.Helper()
	if os.Getenv("POSTERN_SKIP_NETWORK") == "1" {
		t.Skip("POSTERN_SKIP_NETWORK=1: no tests that need root")
	}
	limit, root := "memory.limit_in_bytes", "/sys/fs/cgroup/memory"
	if _, err := os.Stat(root); errors.Is(err, os.ErrNotExist) {
		limit, root = "memory.max", "/sys/fs/cgroup"
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0o644); err != nil {
			t.Fatalf("%v; run as root, or set POSTERN_SKIP_NETWORK=1 to leave out the tests that need it", err)
		}
	}
	dir, err := os.MkdirTemp(root, "postern-")
	if err == nil {
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil { // the processes have ended before
				t.Error(err)
			}
		})
		err = os.WriteFile(filepath.Join(dir, limit), []byte(strconv.Itoa(machine)), 0o644)
	}
	if err != nil {
		t.Fatalf("%v; run as root, or set POSTERN_SKIP_NETWORK=1 to leave out the tests that need it", err)
	}
	return dir
}
