package tunnel

import "sync/atomic"

// Counters are totals since the hub was created.
type Counters struct {
	Connected uint64 `json:"connected"` // sessions established
	Replaced  uint64 `json:"replaced"`  // sessions closed for a newer hello
	Denied    uint64 `json:"denied"`    // hellos denied
	Rejected  uint64 `json:"rejected"`  // connections over the limit, or without a hello
	Requests  uint64 `json:"requests"`  // requests sent through a session
	Failed    uint64 `json:"failed"`    // requests that failed before the response header
}

// counters is the live form of Counters.
type counters struct {
	connected, replaced, denied, rejected, requests, failed atomic.Uint64
}

// Counters returns the totals.
func (h *Hub) Counters() Counters {
	c := &h.counters
	return Counters{
		Connected: c.connected.Load(),
		Replaced:  c.replaced.Load(),
		Denied:    c.denied.Load(),
		Rejected:  c.rejected.Load(),
		Requests:  c.requests.Load(),
		Failed:    c.failed.Load(),
	}
}
