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

// grace is how long what was passed on in time may take to its end, on a busy machine.
const grace = 3 * time.Second

// A history is what clients and the model server have seen. All times are since its start, by
// one clock.
type history struct {
	start time.Time

	mu       sync.Mutex
	requests []request
	arrivals map[string][]arrival // at the model server, by nonce
	writes   []write
	may      []window // requests may fail then
	must     []window // the edge must accept nothing that begins then
	turns    int      // requests for the bounded model that run
	most     int      // of turns at a time
}

// A request has ended.
type request struct {
	edge, key, model, nonce string
	begin, end              time.Duration
	status                  int           // 0: there was no answer
	text                    string        // of the error
	whole                   bool          // the answer has come to its end, or until the client left it
	written, read           time.Duration // the last event of a stream: by the model server, by the client
}

type arrival struct {
	at    time.Duration
	place string
}

// A write is a change by the management API.
type write struct {
	what, of   string // "create" or "revoke" and a key, "move" and a model
	place      string // of the model
	begin, end time.Duration
	err        string
	pending    map[string]time.Duration // edges that have not confirmed, and when they accept nothing
}

// A window is a time at an edge, at all for "", or of all writes for "writes".
type window struct {
	edge     string
	from, to time.Duration
}

func (h *history) now() time.Duration { return time.Since(h.start) }

func newHistory() *history { return &history{start: time.Now(), arrivals: map[string][]arrival{}} }

// record adds to one of the lists.
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

// turn notes that n requests for the bounded model have begun, and returns how many have run at a time.
func (h *history) turn(n int) (most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns += n
	h.most = max(h.most, h.turns)
	return h.most
}

// refused reports whether an edge that runs has not accepted the request.
func (r request) refused() bool {
	const lost = "its store" // which it has lost, or cannot open
	return r.status == http.StatusUnauthorized || r.status >= 500 && strings.Contains(r.text, lost)
}

// refused reports whether the edge has not accepted the request, or does not run.
func (h *history) refused(r request) bool {
	return len(h.arrivals[r.nonce]) == 0 && (r.status == 0 || r.refused())
}

// confirmed reports whether all edges have confirmed the write.
func (w write) confirmed() bool { return w.err == "" && len(w.pending) == 0 }

// inForce returns from when on the write is in force at an edge.
func (w write) inForce(edge string) (at time.Duration, ok bool) {
	if until, pending := w.pending[edge]; pending {
		return max(until, w.end), w.err == ""
	}
	return w.end, w.err == ""
}

// of returns the writes of a kind to a key or a model, in the order of their beginnings.
func (h *history) of(what, of string) (found []write) {
	for _, w := range h.writes {
		if w.what == what && w.of == of {
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

// check returns what is wrong in the history.
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
	revoking := map[string]time.Duration{} // by key: when its first revocation began
	for _, w := range h.writes {
		if w.err != "" && !in(h.may, "writes", w.end) {
			wrong = append(wrong, fmt.Sprintf("a write has failed: %+v", w))
		}
		switch w.what {
		case "create":
			created[w.of] = append(created[w.of], w)
		case "revoke":
			if first, ok := revoking[w.of]; !ok || w.begin < first {
				revoking[w.of] = w.begin
			}
			for _, e := range edges {
				at, ok := w.inForce(e)
				if before, known := gone[[2]string{e, w.of}]; ok && (!known || at < before) {
					gone[[2]string{e, w.of}] = at
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
		for _, w := range h.must {
			accepted := r.begin >= w.from && r.begin < w.to && !h.refused(r)
			if w.edge == r.edge && (accepted || r.written >= w.from && r.written < w.to) {
				report(fmt.Sprintf("accepted without the store, from %v to %v", w.from, w.to))
			}
		}
		if begun, ok := revoking[r.key]; !ok || r.end <= begun {
			h.checkValid(r, created[r.key], report)
		}
		if _, ok := moves[r.model]; !ok {
			moves[r.model] = h.of("move", r.model)
		}
		h.checkPlace(r, moves[r.model], report)
	}
	return wrong
}

// checkGone checks a request with a key that is revoked from a time on.
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

// checkValid checks a request that has ended before the key was revoked.
func (h *history) checkValid(r request, created []write, report func(string)) {
	known := slices.ContainsFunc(created, func(w write) bool {
		at, ok := w.inForce(r.edge)
		return ok && at <= r.begin
	})
	switch {
	case !known:
	case r.status == http.StatusUnauthorized:
		report("refused with a valid key")
	case !r.whole && !in(h.may, r.edge, r.end):
		report("failed")
	}
}

// checkPlace checks where a request was served.
func (h *history) checkPlace(r request, moves []write, report func(string)) {
	var places []string
	for _, w := range moves {
		if at, ok := w.inForce(r.edge); ok && at <= r.begin {
			places = nil // the model has left all places before
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

// String returns how many requests and writes the history has.
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
