package cluster

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// grace is the maximum delay between a server that sends in time and a client on a busy machine.
const grace = 3 * time.Second

// A history has the observations of clients and the model server. All times are since its start, by the same
// clock.
type history struct {
	start time.Time

	mu         sync.Mutex
	requests   []request
	arrivals   map[string][]arrival // requests at the model server, by nonce
	writes     []write
	mayFail    []window // when requests may fail
	mustRefuse []window // when the edge must not accept requests
	turns      int      // running requests for the bounded model
	maxTurns   int      // maximum of turns
}

// A request is a request that has ended.
type request struct {
	edge, key, model, nonce string
	begin, end              time.Duration
	status                  int           // 0: no answer
	text                    string        // text of the error
	whole                   bool          // the answer is complete, or the client left it
	written, read           time.Duration // time of the last event, at the model server and at the client
}

type arrival struct {
	at    time.Duration
	place string
}

// A write is a change by the management API.
type write struct {
	what, target string // "create" or "revoke" with a key, "move" with a model; "revoke" is also a group without the model
	place        string // connector of a moved model
	begin, end   time.Duration
	err          string
	pending      map[string]time.Duration // edges that have not confirmed, with the time after which they accept nothing
}

// A window is a period at an edge, at all edges for "", or for writes for "writes".
type window struct {
	edge     string
	from, to time.Duration
}

func (h *history) now() time.Duration { return time.Since(h.start) }

func newHistory() *history { return &history{start: time.Now(), arrivals: map[string][]arrival{}} }

// record appends an item to one of the lists.
func record[T any](h *history, list *[]T, item T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*list = append(*list, item)
}

func (h *history) arrived(nonce, place string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.arrivals[nonce] = append(h.arrivals[nonce], arrival{h.now(), place})
}

// turn adds n to the number of running requests for the bounded model, and returns the maximum so far.
func (h *history) turn(n int) (maximum int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns += n
	h.maxTurns = max(h.maxTurns, h.turns)
	return h.maxTurns
}

// refused reports whether a running edge has refused the request.
func (r request) refused() bool {
	const lost = " store" // lost, slow, or cannot be opened
	return r.status == http.StatusUnauthorized || r.status >= 500 && strings.Contains(r.text, lost) ||
		r.status == http.StatusNotFound && strings.Contains(r.text, "model_not_found")
}

// refused reports whether the edge has refused the request or was not running.
func (h *history) refused(r request) bool {
	return len(h.arrivals[r.nonce]) == 0 && (r.status == 0 || r.refused())
}

// confirmed reports whether all edges have confirmed the write.
func (w write) confirmed() bool { return w.err == "" && len(w.pending) == 0 }

// inForce returns the time from which the write is in force at an edge.
func (w write) inForce(edge string) (at time.Duration, ok bool) {
	if until, pending := w.pending[edge]; pending {
		return max(until, w.end), w.err == ""
	}
	return w.end, w.err == ""
}

// find returns the writes of a kind for a key or a model, in the order of their start.
func (h *history) find(what, target string) (found []write) {
	for _, w := range h.writes {
		if w.what == what && w.target == target {
			found = append(found, w)
		}
	}
	slices.SortFunc(found, func(a, b write) int { return cmp.Compare(a.begin, b.begin) })
	return found
}

func in(windows []window, edge string, at time.Duration) bool {
	return slices.ContainsFunc(windows, func(w window) bool {
		return (w.edge == edge || w.edge == "" && edge != "writes") && w.from <= at && at < w.to
	})
}

// check returns the errors in the history.
func (h *history) check() (wrong []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	gone, created := map[[2]string]time.Duration{}, map[string][]write{}
	var edges []string
	for _, r := range h.requests {
		if !slices.Contains(edges, r.edge) {
			edges = append(edges, r.edge)
		}
	}
	revoking := map[string]time.Duration{} // start of the first revocation, by key
	for _, w := range h.writes {
		if w.err != "" && !in(h.mayFail, "writes", w.end) {
			wrong = append(wrong, fmt.Sprintf("a write has failed: %+v", w))
		}
		switch w.what {
		case "create":
			created[w.target] = append(created[w.target], w)
		case "revoke":
			if first, ok := revoking[w.target]; !ok || w.begin < first {
				revoking[w.target] = w.begin
			}
			for _, e := range edges {
				at, ok := w.inForce(e)
				if before, known := gone[[2]string{e, w.target}]; ok && (!known || at < before) {
					gone[[2]string{e, w.target}] = at
				}
			}
		}
	}
	moves := map[string][]write{}
	for _, r := range h.requests {
		report := func(problem string) {
			wrong = append(wrong, fmt.Sprintf("%s: %+v, %+v", problem, r, h.arrivals[r.nonce]))
		}
		if len(h.arrivals[r.nonce]) > 1 {
			report("sent twice")
		}
		if at, ok := gone[[2]string{r.edge, r.key}]; ok {
			h.checkGone(r, at, "revoked at "+at.String(), report)
		}
		for _, w := range h.mustRefuse {
			accepted := r.begin >= w.from && r.begin < w.to && !h.refused(r)
			if w.edge == r.edge && (accepted || r.written >= w.from && r.written < w.to) {
				report(fmt.Sprintf("accepted without the store, from %v to %v", w.from, w.to))
			}
		}
		if begun, ok := revoking[r.key]; !ok || r.end <= begun {
			h.checkValid(r, created[r.key], report)
		}
		if _, ok := moves[r.model]; !ok {
			moves[r.model] = h.find("move", r.model)
		}
		h.checkPlace(r, moves[r.model], report)
	}
	return wrong
}

// checkGone checks a request with a key that is revoked from this time on.
func (h *history) checkGone(r request, at time.Duration, why string, report func(string)) {
	switch {
	case r.begin >= at && !h.refused(r):
		report("accepted with a key " + why)
	case r.written >= at:
		report("an event of a stream with a key " + why)
	case r.read >= at+grace:
		report("an event that has waited, of a stream with a key " + why)
	case slices.ContainsFunc(h.arrivals[r.nonce], func(a arrival) bool { return a.at >= at+grace }):
		report("sent to the model server with a key " + why)
	}
}

// checkValid checks a request that ended before the key was revoked.
func (h *history) checkValid(r request, created []write, report func(string)) {
	known := slices.ContainsFunc(created, func(w write) bool {
		at, ok := w.inForce(r.edge)
		return ok && at <= r.begin
	})
	switch {
	case !known:
	case r.status == http.StatusUnauthorized:
		report("refused with a valid key")
	case !r.whole && !in(h.mayFail, r.edge, r.end):
		report("failed")
	}
}

// checkPlace checks that a connector of the model served the request.
func (h *history) checkPlace(r request, moves []write, report func(string)) {
	var places []string
	for _, w := range moves {
		if at, ok := w.inForce(r.edge); ok && at <= r.begin {
			places = nil // earlier moves no longer apply
		}
		if w.begin <= r.end {
			places = append(places, w.place)
		}
	}
	for _, a := range h.arrivals[r.nonce] {
		if len(moves) > 0 && !slices.Contains(places, a.place) {
			report(fmt.Sprintf("served by %s, not by %v", a.place, places))
		}
	}
}

// String returns the numbers of requests and writes.
func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := map[string]int{}
	for _, r := range h.requests {
		switch {
		case r.whole:
			counts["answered"]++
		case h.refused(r):
			counts["refused"]++
		default:
			counts["failed"]++
		}
	}
	for _, w := range h.writes {
		switch {
		case w.err != "":
			counts["failed writes"]++
		case len(w.pending) > 0:
			counts["writes to be confirmed"]++
		default:
			counts["writes"]++
		}
	}
	return fmt.Sprint(counts)
}
