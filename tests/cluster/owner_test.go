package cluster

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

const bound = 4 // max_concurrency of the model

// turns is a model server that answers when it may, and counts.
type turns struct {
	*upstream.Server
	release chan struct{}

	mu      sync.Mutex
	running int
	most    int      // of running, since reset
	arrived []string // who sent the requests, since reset
}

var sender = regexp.MustCompile(`"user":"(\w+)"`)

func (m *turns) answer(x *upstream.Exchange) {
	m.mu.Lock()
	m.running++
	m.most = max(m.most, m.running)
	m.arrived = append(m.arrived, sender.FindStringSubmatch(string(x.Request.Body))[1])
	m.mu.Unlock()
	select {
	case <-m.release:
	case <-x.Gone():
	}
	m.mu.Lock()
	m.running--
	m.mu.Unlock()
	upstream.Echo(x)
}

// startTurns starts a model server for the model "bounded", and returns a key for each edge.
func startTurns(t *testing.T, edges map[string]*gateway) (*turns, map[string]string) {
	t.Helper()
	model, keys := &turns{Server: edges["a"].up, release: make(chan struct{})}, map[string]string{}
	model.Handle("bounded", model.answer)
	edges["a"].Manage(t, http.MethodPut, "/deployments/bounded", map[string]any{"connectors": []string{"box"}, "model": "bounded", "max_concurrency": bound}, nil)
	for name := range edges {
		_, keys[name] = edges["a"].Key(t, name, "*")
		edges[name].await(t, edges[name].Client(t, keys[name]), http.StatusOK, "the model at "+name)
	}
	return model, keys
}

// look returns the numbers of the requests that run and have arrived, and the most of them that
// ran at a time.
func (m *turns) look() (running, arrived, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running, len(m.arrived), m.most
}

// await waits until so many requests have arrived.
func (m *turns) await(t *testing.T, n int) {
	t.Helper()
	harness.Poll(t, limit, fmt.Sprint(n, " requests at the model server"), func(context.Context) error {
		if _, got, _ := m.look(); got < n {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

func (m *turns) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.most, m.arrived = m.running, nil
}

// waiting returns how many requests wait at an edge.
func waiting(ctx context.Context, g *harness.Gateway) (int, error) {
	page, err := g.Admin.Metrics(ctx)
	_, line, ok := strings.Cut(page, `postern_queue_length{deployment="bounded"} `)
	if err != nil || !ok { // no request has entered there
		return 0, err
	}
	line, _, _ = strings.Cut(line, "\n")
	return strconv.Atoi(line)
}

// owner waits until at least so many requests wait at one of the edges and none elsewhere, and
// returns the edge.
func owner(t *testing.T, edges map[string]*gateway, n int) (owner *gateway) {
	t.Helper()
	harness.Poll(t, limit, fmt.Sprint(n, " waiting requests at one edge"), func(ctx context.Context) error {
		lengths := map[string]int{}
		for name, g := range edges {
			waiting, err := waiting(ctx, g.Gateway)
			if err != nil {
				return err
			}
			if waiting > 0 {
				lengths[name], owner = waiting, g
			}
		}
		if len(lengths) != 1 || lengths[owner.name] < n {
			return fmt.Errorf("there are %v", lengths)
		}
		return nil
	})
	return owner
}

// TestOwner: max_concurrency holds for all edges together, and keys take turns over all of them.
// Requests that wait when the edge that counts is killed wait at another one.
func TestOwner(t *testing.T) {
	t.Parallel()
	edges, con := startEdges(t, start(t, 1), "a", "b", "c")
	with, _ := awaitLegs(t, edges, con)
	model, keys := startTurns(t, edges)
	var clients sync.WaitGroup
	send := func(name string, n int) {
		for range n {
			client := edges[name].Client(t, keys[name])
			clients.Go(func() {
				r := client.Request(t.Context(), t, http.MethodPost, "/v1/chat/completions", harness.Chat("bounded", `,"user":"`+name+`"`))
				if a, err := client.Send(r); err != nil || a.Status != http.StatusOK {
					t.Errorf("a request at %s: status %d, %s, %v", name, a.Status, a.Body, err)
				}
			})
		}
	}

	const each = 12
	for name := range edges {
		send(name, each)
	}
	model.await(t, bound)
	counts := owner(t, edges, len(edges)*each-bound)
	model.reset()
	ran := map[string]int{"a": 0, "b": 0, "c": 0}
	for i := range (each - bound) * len(edges) { // each has waiting requests all the time
		model.release <- struct{}{}
		model.await(t, i+1)
		if running, _, most := model.look(); running != bound || most > bound {
			t.Errorf("turns: %d requests run, up to %d at a time", running, most)
		}
		ran[model.arrived[i]]++
		if n := slices.Sorted(maps.Values(ran)); n[2]-n[0] > 1 {
			t.Errorf("turns: %v", ran)
		}
	}
	for range len(edges)*each - (each-bound)*len(edges) {
		model.release <- struct{}{}
	}
	clients.Wait()

	delete(edges, counts.name)
	left := slices.DeleteFunc(with, func(name string) bool { return name == counts.name })[0]
	model.reset()
	send(left, bound) // they go over its own tunnel
	model.await(t, bound)
	for name := range edges {
		send(name, 2*bound)
	}
	owner(t, map[string]*gateway{counts.name: counts}, 4*bound) // the same as before
	counts.Process.Signal(t, syscall.SIGKILL)
	counts.Process.WaitExit(t, limit)
	model.await(t, 2*bound) // as many as before, which are not counted, and those that another edge counts
	close(model.release)
	clients.Wait()
}
