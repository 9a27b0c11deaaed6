package serve

import (
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/connector/link/blocks"
	"github.com/postern-dev/postern/connector/memory"
)

// The cost of a request in the memory budget, measured as the peak of live memory,
// including the garbage of one step.
const (
	// requestCost is the fixed cost of a request in bytes: goroutines, stream
	// buffers. An answer that is smaller is free.
	requestCost = 32 << 10
	// A body of another dialect is in memory as received, as a conversation and
	// as the upstream's body. The first and the last stay. Both are multiples of
	// the body's size.
	translateCost  = 5
	translatedCost = 3
	// A whole answer during its translation: a chat completion is copied once,
	// others are read as events and encoded again.
	rewriteCost = 2
	encodeCost  = 7
	// replayCost is for a whole answer that becomes an event stream.
	replayCost = 3
	// streamCost is for buffered content, which the last events of a stream repeat.
	streamCost = 6
)

// maxRemembered is how much of an answer a stream may buffer, in bytes.
const maxRemembered = maxAnswer

// step is the smallest change of a stream's buffers that is accounted for, in bytes.
const step = 64 << 10

// holdings is the memory that a request and its answer have reserved.
type holdings struct {
	reservation memory.Reservation
	fetched     memory.Reservation // for responses that other gateways keep
	full        bool               // fetched could not grow
	request     int64              // bytes
	answer      int64              // bytes
	remembered  int64              // bytes of a stream, included in answer
	place       *largePlace
}

// holdRequest sets the request's part to n bytes.
func (h *holdings) holdRequest(n int64) error {
	if n == h.request && n > 0 {
		return nil
	}
	if err := h.reservation.Set(requestCost + n); err != nil {
		return err
	}
	h.request = n
	return nil
}

// holdAnswer sets the answer's part to n bytes.
func (h *holdings) holdAnswer(n int64) error {
	if n <= requestCost && h.answer == 0 {
		return nil
	}
	if err := h.reservation.Set(requestCost + h.request + n); err != nil {
		return err
	}
	h.answer = n
	return nil
}

// fetch adds n bytes of a response that another gateway keeps.
func (h *holdings) fetch(n int64) error {
	err := h.fetched.Grow(n)
	h.full = h.full || err != nil
	return err
}

// remember sets the size of the stream's buffers to held bytes.
func (h *holdings) remember(held int64) error {
	if change := held - h.remembered; -step < change && change < step {
		return nil
	}
	if err := h.holdAnswer(h.answer + streamCost*(held-h.remembered)); err != nil {
		return err
	}
	h.remembered = held
	return nil
}

// costs are the bytes of memory for each byte of a body.
type costs struct {
	decoding int64 // of the request's body while it is decoded
	decoded  int64 // of the request's body after decoding
	encoding int64 // of a whole answer while it is translated
}

// bodyCost returns the bytes for a body of n bytes that costs each byte so many times, with
// the buffers that encode it for the tunnel.
func bodyCost(n, each int64) int64 {
	if n < blocks.Least {
		return n * each
	}
	return n*each + blocks.Memory
}

// costs returns the costs in the request's dialect. That of the upstream is chat.
func (ex *Exchange) costs() costs {
	if ex.Operation.Dialect == dialect.Chat {
		return costs{1, 1, rewriteCost}
	}
	return costs{translateCost, translatedCost, encodeCost}
}
