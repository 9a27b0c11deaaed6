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
	"github.com/postern-dev/postern/tests/upstream"
)

// machine is the memory in bytes of the machine that the cgroup simulates.
const machine = 512 << 20

// A gateway in a cgroup of 512 MB, without GOMEMLIMIT, is attacked by one key whose requests cost the gateway
// much more than the client. It is not killed, and serves another key: every request is answered correctly,
// and half of them within the limit. Each attack takes 4 s, or POSTERN_ATTACK_MINUTES.
func TestSmallMachine(t *testing.T) {
	cgroup := newCgroup(t)
	t.Setenv("GOMEMLIMIT", "")
	if err := os.Unsetenv("GOMEMLIMIT"); err != nil {
		t.Fatal(err)
	}
	g := newTarget(t, harness.Options{Cgroup: cgroup})
	g.bulk(t)
	g.endless(t)
	g.client = g.Gateway.Client(t, g.key) // honest, with the first key
	_, g.key = g.Key(t, "attackers", "*")

	attacks := []string{
		"system messages", "calls", "a model out of reach", "white space", "items",
		"endless streams", "endless answers", "whole answers", "waiting bodies", "slow bodies", "slow readers", "heads",
	}
	each := 4 * time.Second
	if minutes, err := strconv.ParseFloat(os.Getenv("POSTERN_ATTACK_MINUTES"), 64); err == nil {
		each = time.Duration(minutes * float64(time.Minute))
	}
	limit := g.latencyLimit(t)
	for _, attack := range attacks {
		t.Run(attack, func(t *testing.T) { g.withstand(t, "costly/"+attack, each, limit) })
	}
}

// latencyLimit returns the limit for the median of honest requests: a second, or more if requests without an
// attack are slow on this machine.
func (g *target) latencyLimit(t *testing.T) time.Duration {
	t.Helper()
	var took []time.Duration
	for range 100 {
		start := time.Now()
		if err := g.checkAnswer(t, link.TransportWebSocket); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return max(time.Second, 200*took[len(took)/2])
}

// bulk adds a model server with its own connector. Its model bulk answers slowly, and its model large sends
// large answers.
func (g *target) bulk(t *testing.T) {
	t.Helper()
	large := `{"id":"x","object":"chat.completion","created":1,"model":"large","choices":[{"index":0,` +
		`"message":{"role":"assistant","content":"` +
		strings.Repeat("x", 20<<20) + `"},"finish_reason":"stop"}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := make([]byte, 200)
		n, _ := io.ReadFull(r.Body, start) // the body may be shorter
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(start[:n]), `"large"`) {
			w.Header().Set("Content-Length", strconv.Itoa(len(large)))
			_, _ = io.WriteString(w, large) // the gateway may have disconnected
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

// endless adds models whose answers, or the headers of these, have no end: the server sends a start, and then repeats a
// part until the gateway closes the connection.
func (g *target) endless(t *testing.T) {
	t.Helper()
	const (
		head   = "HTTP/1.1 200 OK\r\n"
		object = "Content-Type: application/json\r\nContent-Length: 9000000000\r\n\r\n"
		stream = "Content-Type: text/event-stream\r\nContent-Length: 9000000000\r\n\r\n"
		delta  = `data: {"choices":[{"index":0,"delta":`
	)
	text := strings.Repeat("x", 2<<10)
	for model, parts := range map[string][2]string{
		"json":          {head + object + `{"choices":[{"message":{"content":"`, text},
		"event":         {head + stream, delta + `{"content":"` + text + `"}}]}` + "\n\n"},
		"line":          {head + stream + "data: ", text},
		"heads":         {head + "A: " + strings.Repeat("\n", 300<<10) + "\r\n", "A: b\r\n"},
		"header":        {head, "A: " + text + "\r\n"},
		"informational": {"", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"},
		"error":         {"HTTP/1.1 500 Oh\r\n" + object + `{"error":{"message":"`, text},
		"call": {head + stream, delta + `{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f",` +
			`"arguments":"` + text + `"}}]}}]}` + "\n\n"},
	} {
		g.up.Handle(model, func(x *upstream.Exchange) {
			x.Write(parts[0])
			for !x.Left() {
				x.Sleep(time.Millisecond)
				x.Write(parts[1])
			}
		})
		g.Deploy(t, model, link.TransportQUIC, "", model)
	}
}

// withstand attacks the gateway for a time. All honest requests must be answered, and half of them within the
// limit. The slowest ones depend on the load of the machine.
func (g *target) withstand(t *testing.T, attack string, length, limit time.Duration) {
	s := g.siege(t, attack, length, func(model string) error { return g.checkAnswer(t, model) }, func() {})
	took := slices.Sorted(slices.Values(slices.Concat(s.served[link.TransportQUIC], s.served[link.TransportWebSocket])))
	p50, p99 := took[len(took)/2], took[(len(took)-1)*99/100]
	t.Logf("%s: at most %d MiB; %d honest requests, p50 %v, p99 %v", s.story, s.highest>>20, len(took),
		p50.Round(time.Millisecond), p99.Round(time.Millisecond))
	if p50 > limit {
		t.Errorf("p50 of honest requests is %v, more than %v", p50, limit)
	}
}

// checkAnswer sends an honest request. The answer must contain the length of the request.
func (g *target) checkAnswer(t *testing.T, model string) error {
	body := harness.Chat(model, "")
	// The upstream gets the body with its own name of the model.
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

// newCgroup creates a cgroup, of version 1 or 2, with the memory of a small machine, and returns its folder.
func newCgroup(t *testing.T) string {
	t.Helper()
	if os.Getenv("POSTERN_SKIP_NETWORK") == "1" {
		t.Skip("POSTERN_SKIP_NETWORK=1: tests that need root are skipped")
	}
	limit, root := "memory.limit_in_bytes", "/sys/fs/cgroup/memory"
	if _, err := os.Stat(root); errors.Is(err, os.ErrNotExist) {
		limit, root = "memory.max", "/sys/fs/cgroup"
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0o644); err != nil {
			t.Fatalf("%v; run as root, or set POSTERN_SKIP_NETWORK=1 to skip these tests", err)
		}
	}
	dir, err := os.MkdirTemp(root, "postern-")
	if err == nil {
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil { // its processes have ended
				t.Error(err)
			}
		})
		err = os.WriteFile(filepath.Join(dir, limit), []byte(strconv.Itoa(machine)), 0o644)
	}
	if err != nil {
		t.Fatalf("%v; run as root, or set POSTERN_SKIP_NETWORK=1 to skip these tests", err)
	}
	return dir
}
