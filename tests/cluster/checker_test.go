package cluster

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestChecker: the checker accepts a correct history, and finds the error in each of the others.
func TestChecker(t *testing.T) {
	t.Parallel()
	const s = time.Second
	at := func(r request, begin, end time.Duration) request {
		r.nonce, r.begin, r.end = "n", begin, end
		return r
	}
	ok := request{edge: "a", key: "k", model: "m", status: http.StatusOK, whole: true}
	revoked := request{edge: "a", key: "k", model: "m", status: http.StatusUnauthorized}
	outOfScope := request{edge: "a", key: "k", model: "m", status: http.StatusNotFound, text: "model_not_found"}
	lost := request{edge: "a", key: "k", model: "m", status: http.StatusServiceUnavailable, text: "has lost its store"}
	slow := request{
		edge: "a", key: "k", model: "m", status: http.StatusServiceUnavailable,
		text: "gateway's store is slow to respond",
	}
	broken := request{edge: "a", key: "k", model: "m", status: http.StatusBadGateway}
	silent := request{edge: "a", key: "k", model: "m"}
	stream := at(ok, 11*s, 19*s)
	stream.written, stream.read, stream.whole = 15*s, 15*s, false
	late, waited := stream, stream
	late.written, waited.read = 21*s, 26*s
	elsewhere := at(ok, 21*s, 22*s)
	elsewhere.edge = "b"
	cut, pending := stream, elsewhere
	cut.end, pending.begin = 20*s, 25*s
	one := func(at time.Duration) []arrival { return []arrival{{at, "one"}} }
	for name, row := range map[string]struct {
		request  request
		arrivals []arrival
		want     string // "" for a correct history
	}{
		"a request while the key is valid":          {at(ok, 11*s, 12*s), one(11 * s), ""},
		"a request over a revocation":               {at(ok, 19*s, 21*s), []arrival{{19 * s, "two"}}, ""},
		"a refusal over a revocation":               {at(revoked, 19*s, 20*s), nil, ""},
		"a refusal after a revocation":              {at(revoked, 21*s, 22*s), nil, ""},
		"a slow store after a revocation":           {at(slow, 21*s, 22*s), nil, ""},
		"no answer after a revocation":              {at(silent, 21*s, 22*s), nil, ""},
		"a stream that is cut":                      {stream, one(11 * s), "failed"},
		"a stream that the revocation cuts":         {cut, nil, ""},
		"before the edge has confirmed":             {elsewhere, []arrival{{21 * s, "two"}}, ""},
		"after the time of an edge that is pending": {pending, nil, "accepted with a key"},
		"accepted after a revocation":               {at(ok, 21*s, 22*s), nil, "accepted with a key"},
		"failed after a revocation":                 {at(broken, 21*s, 22*s), nil, "accepted with a key"},
		"unanswered, but sent":                      {at(silent, 21*s, 22*s), one(21 * s), "accepted with a key"},
		"sent late":                                 {at(silent, 19*s, 26*s), one(25 * s), "sent to the model server"},
		"an event after a revocation":               {late, nil, "an event of a stream"},
		"an event that has waited":                  {waited, nil, "an event that has waited"},
		"out of scope after a revocation":           {at(outOfScope, 21*s, 22*s), nil, ""},
		"a fresh key out of scope":                  {at(outOfScope, 11*s, 12*s), nil, "failed"},
		"a fresh key refused":                       {at(revoked, 11*s, 12*s), nil, "refused with a valid key"},
		"a request that fails":                      {at(broken, 11*s, 12*s), nil, "failed"},
		"a request that may fail":                   {at(broken, 14*s, 15*s+s/2), nil, ""},
		"an edge without the store":                 {at(lost, 12*s, 13*s), nil, ""},
		"an edge that must refuse":                  {at(ok, 12*s, 13*s), nil, "accepted without the store"},
		"an old place":                              {at(ok, 14*s, 15*s), one(14 * s), "served by one"},
		"either place":                              {at(ok, 13*s+s/2, 15*s), []arrival{{14 * s, "two"}}, ""},
		"two arrivals":                              {at(ok, 11*s, 12*s), append(one(11*s), one(11*s)...), "sent twice"},
	} {
		h := newHistory()
		h.requests, h.arrivals["n"] = []request{row.request}, row.arrivals
		h.writes = []write{
			{what: "move", target: "m", place: "one", begin: 8 * s, end: 9 * s},
			{what: "create", target: "k", begin: 9 * s, end: 10 * s},
			{what: "move", target: "m", place: "two", begin: 13 * s, end: 14 * s},
			{what: "revoke", target: "k", begin: 19 * s, end: 20 * s, pending: map[string]time.Duration{"b": 24 * s}},
		}
		h.mayFail = []window{{"a", 15 * s, 16 * s}}
		if strings.Contains(name, "store") || strings.Contains(name, "must refuse") {
			h.mayFail = []window{{"a", 12 * s, 16 * s}}
			h.mustRefuse = []window{{"a", 12 * s, 13 * s}}
		}
		wrong := strings.Join(h.check(), "\n")
		if row.want == "" && wrong != "" || !strings.Contains(wrong, row.want) {
			t.Errorf("%s: %q, want %q", name, wrong, row.want)
		}
	}
	h := newHistory()
	if h.writes = []write{{what: "create", err: "status 503"}}; len(h.check()) != 1 {
		t.Error("a write that fails is accepted")
	}
}
