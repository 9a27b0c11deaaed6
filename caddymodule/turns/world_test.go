package turns

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// world has a scheduler with one account, and model servers that load models.
type world struct {
	*testing.T
	*Scheduler
	load, answer time.Duration
	answers      map[string]time.Duration // by model; else answer
	begun        time.Time
	wg           sync.WaitGroup

	mu          sync.Mutex
	deployments map[string]Deployment
	connectors  map[string]Connector
	loaded      map[string]string    // by server
	ready       map[string]time.Time // by server: when the model is loaded
	loads       int
	log         []entry
	held        map[string]*Place
	served      map[string]int // by client
	started     func(model string)
}

// entry is a name with the start of its request, or an error and the end.
type entry struct {
	text  string
	at    time.Duration
	clock uint64 // of its place
}

const acme = "acme"

func newWorld(t *testing.T) *world {
	w := &world{
		T: t, begun: time.Now(), deployments: map[string]Deployment{}, connectors: map[string]Connector{},
		loaded: map[string]string{}, ready: map[string]time.Time{}, held: map[string]*Place{}, served: map[string]int{},
	}
	w.Scheduler = New(func(_, name string) (Deployment, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		d, ok := w.deployments[name]
		return d, ok
	})
	return w
}

var errRoute = errors.New("no route")

// connect reports a connector with plain servers, and ones that load one model at a time, which begin with a "1".
func (w *world) connect(id string, maxRequests int, servers ...string) {
	c := Connector{ID: id, Account: acme, MaxRequests: maxRequests}
	for _, name := range servers {
		name, down := strings.CutSuffix(name, "!")
		c.Servers = append(c.Servers, Server{Name: name, OneModel: strings.HasPrefix(name, "1"), Down: down})
	}
	c.Resolve = func(deployment, upstream, model string) (string, string, error) {
		if upstream == "" {
			upstream = c.Servers[0].Name
		}
		if !slices.ContainsFunc(c.Servers, func(s Server) bool { return s.Name == upstream }) {
			return "", "", errRoute
		}
		if model == "" {
			model = deployment
		}
		return upstream, model, nil
	}
	w.connectors[id] = c
	w.SetConnector(c)
}

// deploy sets a deployment. model is the model, or a server and the model behind a slash.
func (w *world) deploy(name, model string, limit int, connectors ...string) {
	upstream, model, ok := strings.Cut(model, "/")
	if !ok {
		upstream, model = "", upstream
	}
	w.mu.Lock()
	w.deployments[name] = Deployment{Connectors: connectors, Upstream: upstream, Model: model, MaxConcurrency: limit}
	w.mu.Unlock()
	w.DeploymentChanged(acme, name)
}

// request parses "name client deployment flags": the client is owner/key or an owner; flags are low, high, judge,
// refused=c, unfit=c, wait=60, length=4, waited=5.
func (w *world) request(text string) (name string, q *Request) {
	f := strings.Fields(text)
	owner, key, _ := strings.Cut(f[1], "/")
	q = &Request{
		Account: acme, Deployment: f[2], Client: fair.Client{Owner: owner, Key: key}, Length: 5000, Wait: time.Hour,
		ConnectWait: 15 * time.Second, Arrived: time.Now(),
	}
	for _, flag := range f[3:] {
		flag, value, _ := strings.Cut(flag, "=")
		n, _ := strconv.ParseFloat(value, 64)
		seconds := time.Duration(n * float64(time.Second))
		switch flag {
		case "low":
			q.Priority = Low
		case "high":
			q.Priority = High
		case "judge":
			q.Judge = true
		case "refused":
			q.Refused = append(q.Refused, value)
		case "unfit":
			q.Unfit = map[string]bool{value: true}
		case "wait":
			q.Wait = seconds
		case "length":
			q.Length = int(n)
		case "waited":
			q.Waited, q.Arrived = seconds, q.Arrived.Add(-seconds)
		default:
			w.Fatalf("unknown flag %q", flag)
		}
	}
	return f[0], q
}

func (w *world) note(text string, p *Place) {
	e := entry{text, time.Since(w.begun), 0}
	if p != nil {
		e.clock = p.clock
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, e)
}

// ask sends a request and holds its place until leave.
func (w *world) ask(text string) context.CancelFunc {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	name, q := w.request(text)
	w.wg.Go(func() {
		p, err := w.Wait(ctx, q)
		if err != nil {
			w.note(name+": "+err.Error(), nil)
			return
		}
		w.note(name, p)
		w.mu.Lock()
		w.held[name] = p
		w.mu.Unlock()
	})
	synctest.Wait()
	return cancel
}

// leave ends the places of requests, in order.
func (w *world) leave(names ...string) {
	w.Helper()
	for _, name := range names {
		p := w.take(name)
		p.Leave()
		synctest.Wait()
	}
}

func (w *world) take(name string) *Place {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.held[name]
	if p == nil {
		w.Fatalf("%s has no place; %v", name, w.log)
	}
	delete(w.held, name)
	return p
}

// run sends a request and serves it. The head of an answer comes when the model is loaded.
func (w *world) run(ctx context.Context, text string) {
	w.wg.Go(func() { w.serve(ctx, text) })
}

func (w *world) serve(ctx context.Context, text string) {
	name, q := w.request(text)
	p, err := w.Wait(ctx, q)
	if err != nil {
		w.note(name+": "+err.Error(), nil)
		return
	}
	w.note(name, p)
	if w.started != nil {
		w.mu.Lock()
		w.started(p.Model)
		w.mu.Unlock()
	}
	time.Sleep(w.loading(p.Connector+"/"+p.Server, p.Model))
	p.Answered()
	if d, ok := w.answers[p.Model]; ok {
		time.Sleep(d)
	} else {
		time.Sleep(w.answer)
	}
	w.mu.Lock()
	w.served[q.Client.Owner+"/"+q.Client.Key]++
	w.mu.Unlock()
	p.Leave()
}

// loading returns how long a server needs until a model is loaded.
func (w *world) loading(server, model string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.loaded[server] != model {
		w.loads++
		w.loaded[server] = model
		w.ready[server] = time.Now().Add(w.load)
	}
	return time.Until(w.ready[server])
}

// at sleeps until a time since the beginning.
func (w *world) at(seconds float64) {
	time.Sleep(time.Until(w.begun.Add(time.Duration(seconds * float64(time.Second)))))
	synctest.Wait()
}

// expect expects the log, and clears it. Errors of ErrFull have the short form "full", and so on.
func (w *world) expect(want string) {
	w.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.log, func(d, e entry) int {
		return cmp.Or(cmp.Compare(d.at, e.at), cmp.Compare(d.clock, e.clock))
	})
	var all []string
	for _, e := range w.log {
		all = append(all, e.text+" "+strconv.FormatFloat(e.at.Seconds(), 'f', -1, 64))
	}
	got := strings.Join(all, ", ")
	for err, short := range map[error]string{
		ErrFull: "full", ErrTimeout: "late", ErrOffline: "offline", ErrRefused: "refused", ErrUnfit: "unfit",
		ErrRemoved:       "removed",
		context.Canceled: "left",
	} {
		got = strings.ReplaceAll(got, err.Error(), short)
	}
	if got != want {
		w.Errorf("served\n%s, want\n%s", got, want)
	}
	w.log = nil
}

// empty ends what holds a place, disconnects all, and expects that nothing is left.
func (w *world) empty() {
	w.Helper()
	for _, name := range slices.Sorted(maps.Keys(w.held)) {
		w.leave(name)
	}
	for id := range w.connectors {
		w.RemoveConnector(acme, id)
	}
	time.Sleep(time.Hour)
	w.wg.Wait()
	for name := range w.held {
		w.leave(name)
	}
	w.Scheduler.mu.Lock()
	defer w.Scheduler.mu.Unlock()
	if n := len(w.accounts); n > 0 {
		a := w.accounts[acme]
		w.Errorf("%d connectors, %d lines, %d shares are left", len(a.connectors), len(a.lines), len(a.shares))
	}
}
