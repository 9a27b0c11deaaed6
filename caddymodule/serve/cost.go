package serve

import (
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/connector/memory"
)

// The cost of a request in the memory budget, measured as the peak of what lives
// meanwhile, the garbage of one step included.
const (
	// requestCost is what each request takes, in bytes, however small it is:
	// goroutines, buffers of streams. An answer that is smaller is free.
	requestCost = 32 << 10
	// A body of another dialect is there as it came, as the parts of a
	// conversation and as the upstream's body, of which the first and the last
	// stay: multiples of its size.
	translateCost  = 5
	translatedCost = 3
	// A whole answer, while it is made into the client's: a chat completion is
	// copied once, others are read as events, and written again.
	rewriteCost = 2
	encodeCost  = 7
	// replayCost is for a whole answer that becomes an event stream.
	replayCost = 3
	// streamCost is for what a stream remembers: its last events repeat it.
	streamCost = 6
	// Decoders of compressed bodies have a window, whatever they decode.
	gzipCost = 64 << 10
	zstdCost = zstdWindow + 2<<20
)

// maxRemembered is how much a stream may remember of an answer, in bytes.
const maxRemembered = maxAnswer

// step is the least change in what a stream remembers that is counted, in bytes.
const step = 64 << 10

// holdings are what a request holds of the memory budget: its own part, and that
// of its answer.
type holdings struct {
	reservation memory.Reservation
	request     int64 // bytes
	answer      int64 // bytes
	remembered  int64 // bytes of a stream, of answer
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

// remember sets what the answer's stream remembers to held bytes.
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

// translates reports whether the request is one of another dialect.
func (ex *Exchange) translates() bool { return ex.Operation.Dialect != dialect.Chat }

// bodyCost is what n bytes of the request's body cost while it is decoded.
func (ex *Exchange) bodyCost(n int64) int64 {
	if ex.translates() {
		return translateCost * n
	}
	return n
}

// decodedCost is what they cost from then on.
func (ex *Exchange) decodedCost(n int64) int64 {
	if ex.translates() {
		return translatedCost * n
	}
	return n
}

// answerCost is what n bytes of a whole answer cost while they are translated.
func (ex *Exchange) answerCost(n int64) int64 {
	if ex.translates() {
		return encodeCost * n
	}
	return rewriteCost * n
}
