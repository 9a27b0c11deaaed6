package cluster

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

type key struct{ id, secret string }

const (
	pace     = 40 * time.Millisecond // interval of requests and of events
	events   = 5                     // number of events of a finite stream
	endless  = "endless"             // prefix of the nonce of an endless stream
	occupied = 25 * time.Millisecond // response time of the bounded model
	bound    = 4                     // max_concurrency of the bounded model
)

var (
	nonceOf = regexp.MustCompile(`"user":"(\w+)"`)
	written = regexp.MustCompile(`"content":"(\d+)"`)
	numbers atomic.Int64
)

// serve handles requests as the model server. The answer has the time of each event.
func (h *history) serve(x *upstream.Exchange) {
	nonce := nonceOf.FindStringSubmatch(string(x.Request.Body))[1]
	h.arrived(nonce, x.Request.Model)
	text := func() string { return strconv.FormatInt(int64(h.now()), 10) }
	if x.Request.Model == "bounded" {
		h.turn(1)
		x.Sleep(occupied)
		h.turn(-1)
	}
	if !strings.Contains(string(x.Request.Body), `"stream":true`) {
		upstream.JSON(upstream.Completion(x.Request.Model, text()))(x)
		return
	}
	x.Stream()
	for n := 0; n < events || strings.HasPrefix(nonce, endless); n++ {
		select {
		case <-x.Gone():
			return
		default:
			x.Chunk(upstream.Delta(x.Request.Model, text()))
			x.Sleep(pace)
		}
	}
	x.Chunk(upstream.Finish(x.Request.Model, "stop") + upstream.Done)
	x.End()
}

// send sends a request for a model and adds it to the history. kind is "", "stream" or endless; an endless
// stream ends with ctx. began is called on each event.
func (c *cluster) send(ctx context.Context, e *edge, k key, model, kind string, began func()) request {
	h := c.history
	nonce := kind + "n" + strconv.FormatInt(numbers.Add(1), 10)
	r := request{edge: e.name, key: k.id, model: model, nonce: nonce, begin: h.now()}
	more := `,"user":"` + r.nonce + `"`
	if kind != "" {
		more += `,"stream":true`
	}
	c.exchange(ctx, e, k, harness.Chat(model, more), &r, began)
	r.end = h.now()
	record(h, &h.requests, r)
	return r
}

func (c *cluster) exchange(ctx context.Context, e *edge, k key, body string, r *request, began func()) {
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		panic(err) // the URL is valid
	}
	out.Header.Set("Content-Type", "application/json")
	out.Header.Set("Authorization", "Bearer "+k.secret)
	in, err := c.web.RoundTrip(out)
	if err != nil {
		r.text, r.whole = err.Error(), ctx.Err() != nil
		return
	}
	defer in.Body.Close()
	r.status = in.StatusCode
	lines, streamed, done := bufio.NewScanner(in.Body), strings.Contains(body, `"stream":true`), false
	for lines.Scan() {
		line := lines.Text()
		if m := written.FindStringSubmatch(line); m != nil {
			at, _ := strconv.ParseInt(m[1], 10, 64) // the pattern has digits only
			if r.written, r.read = time.Duration(at), c.history.now(); began != nil {
				began()
			}
		} else if line != "" {
			r.text = line
		}
		done = done || line == strings.TrimSpace(upstream.Done)
	}
	left := ctx.Err() != nil && !strings.Contains(r.text, `"error"`)
	if err := lines.Err(); err != nil && !left {
		r.text = err.Error()
		return
	}
	r.whole = r.status == http.StatusOK && (!streamed || done || left)
}

// A use is a group of clients with the same key at all edges: at each edge, requests, streams and an endless
// stream.
type use struct {
	c       *cluster
	stop    func()
	whole   map[string]*atomic.Int64 // answered requests, by edge
	refused map[string]*atomic.Int64
	flowing map[string]*atomic.Int64 // events of endless streams, by edge
}

// use starts clients with a key. They run until the test ends or stop is called.
func (c *cluster) use(k key, streams bool) *use {
	type counters = map[string]*atomic.Int64
	u := &use{c: c, whole: counters{}, refused: counters{}, flowing: counters{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	loop := func(f func(i int)) {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				f(i)
				time.Sleep(pace)
			}
		})
	}
	for _, e := range c.edges {
		whole, refused, flowing := new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)
		u.whole[e.name], u.refused[e.name], u.flowing[e.name] = whole, refused, flowing
		loop(func(i int) {
			kind := ""
			if i%4 == 3 {
				kind = "stream"
			}
			if r := c.send(context.WithoutCancel(ctx), e, k, "m", kind, nil); r.whole {
				whole.Add(1)
			} else if r.refused() {
				refused.Add(1)
			}
		})
		if !streams {
			continue
		}
		loop(func(int) { c.send(ctx, e, k, "m", endless, func() { flowing.Add(1) }) })
	}
	u.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	c.stops = append(c.stops, u.stop)
	return u
}

// more waits until each counter has grown by n.
func (u *use) more(counters map[string]*atomic.Int64, n int64, what string) {
	u.c.Helper()
	for name, counter := range counters {
		want := counter.Load() + n
		harness.Poll(u.c, u.c.patience(), what+" at "+name, func(context.Context) error {
			if got := counter.Load(); got < want {
				return fmt.Errorf("%d, not yet %d", got, want)
			}
			return nil
		})
	}
}

// serves waits until the edge answers requests, and returns the time.
func (c *cluster) serves(e *edge) time.Duration {
	c.Helper()
	harness.Poll(c, c.patience(), "answers at "+e.name, func(ctx context.Context) error {
		r := request{edge: e.name}
		body := harness.Chat("m", fmt.Sprintf(`,"user":"p%d"`, numbers.Add(1)))
		if c.exchange(ctx, e, c.steady, body, &r, nil); !r.whole {
			return fmt.Errorf("status %d, %s", r.status, r.text)
		}
		return nil
	})
	return c.history.now()
}

// write sends a change to an edge and adds it to the history.
func (c *cluster) write(e *edge, w write, method, path string, body any) (answer []byte, made write) {
	w.begin = c.history.now()
	answer, err := e.Admin.Call(context.Background(), method, "/model_gateway"+path, body)
	w.end = c.history.now()
	var pending struct {
		store.Unconfirmed
		Key store.Unconfirmed `json:"unconfirmed"` // of a key that is created
		ID  string
	}
	if err != nil {
		w.err = err.Error()
	} else if len(answer) > 0 {
		if err := json.Unmarshal(answer, &pending); err != nil {
			c.Errorf("%s: %v", answer, err)
		}
	}
	w.pending = map[string]time.Duration{}
	for _, p := range append(pending.Pending, pending.Key.Pending...) {
		w.pending[p.Edge] = p.Until.Sub(c.history.start)
	}
	w.target = cmp.Or(w.target, pending.ID)
	record(c.history, &c.history.writes, w)
	return answer, w
}

// create creates a key at an edge.
func (c *cluster) create(e *edge) key {
	c.Helper()
	return c.createIn(e, "")
}

// group creates a group that allows the model, and returns its id.
func (c *cluster) group(e *edge) string {
	c.Helper()
	body := map[string]string{"name": fmt.Sprint("group-", numbers.Add(1)), "scope": "m"}
	_, w := c.write(e, write{what: "group"}, http.MethodPost, "/groups", body)
	c.confirmed(w)
	return w.target
}

// createIn creates a key that counts for a group.
func (c *cluster) createIn(e *edge, group string) key {
	c.Helper()
	var k struct{ ID, Key string }
	body := map[string]string{"name": fmt.Sprint("key-", numbers.Add(1)), "scope": "*", "group": group}
	answer, w := c.write(e, write{what: "create"}, http.MethodPost, "/keys", body)
	if err := json.Unmarshal(answer, &k); err != nil {
		c.Fatalf("a key of %s: %+v", e.name, w)
	}
	e.Hide(k.Key)
	return key{k.ID, k.Key}
}

// revoke revokes a key.
func (c *cluster) revoke(e *edge, k key) write {
	_, w := c.write(e, write{what: "revoke", target: k.id}, http.MethodDelete, "/keys/"+k.id, nil)
	return w
}

// takeAway takes the model away from a key by a change of its group.
func (c *cluster) takeAway(e *edge, k key, method, path string, body any) write {
	_, w := c.write(e, write{what: "revoke", target: k.id}, method, path, body)
	return w
}

// move changes the connector of the model.
func (c *cluster) move(e *edge, place string) write {
	body := map[string]string{"connector": place, "model": place}
	_, w := c.write(e, write{what: "move", target: "m", place: place}, http.MethodPut, "/deployments/m", body)
	return w
}

// confirm repeats the revocation of a key until all edges have confirmed it, and returns the time.
func (c *cluster) confirm(e *edge, k key) time.Duration {
	c.Helper()
	harness.Poll(c, c.patience(), "a confirmed revocation", func(context.Context) error {
		if w := c.revoke(e, k); !w.confirmed() {
			return fmt.Errorf("%+v", w)
		}
		return nil
	})
	return c.history.now()
}

// standstill returns the longest time between two answers of the bounded model since a time, at all edges but
// one.
func (c *cluster) standstill(but *edge, since time.Duration) (longest time.Duration) {
	c.history.mu.Lock()
	defer c.history.mu.Unlock()
	ends := []time.Duration{since, c.history.now()}
	for _, r := range c.history.requests {
		if r.model == "bounded" && r.whole && r.edge != but.name && r.end > since {
			ends = append(ends, r.end)
		}
	}
	slices.Sort(ends)
	for i := range ends[1:] {
		longest = max(longest, ends[i+1]-ends[i])
	}
	return longest
}

// counting returns the edge that queues requests, because it counts them.
func (c *cluster) counting() (counts *edge) {
	harness.Poll(c, c.patience(), "an edge that counts", func(ctx context.Context) error {
		for _, e := range c.edges {
			if n, err := waiting(ctx, e.Gateway); err != nil || n > 0 {
				counts = e
				return err
			}
		}
		return errors.New("no request waits")
	})
	return counts
}

// waiting returns the number of queued requests at an edge.
func waiting(ctx context.Context, g *harness.Gateway) (int, error) {
	page, err := g.Admin.Metrics(ctx)
	_, line, ok := strings.Cut(page, `postern_queue_length{deployment="bounded"} `)
	if err != nil || !ok { // nothing was queued there
		return 0, err
	}
	line, _, _ = strings.Cut(line, "\n")
	return strconv.Atoi(line)
}
