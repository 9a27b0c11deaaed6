package serve

import (
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/connector/link/bodies"
	"github.com/postern-dev/postern/connector/memory"
)

// The cost of a request in the memory budget, measured as the peak of live memory,
// including the garbage of one step.
const (
	// requestCost is the fixed cost of a request in bytes: goroutines, stream
	// buffers. An answer that is smaller is free.
	requestCost = 32 << 10
	// A body of another dialect is in memory as received, as a conversation and
	// as the upstream's body. The first and the last stay. The costs are
	// multiples of the body's size.
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

// maxBuffered is how much of an answer a stream may buffer, in bytes.
const maxBuffered = maxAnswer

// step is the smallest change of a stream's buffers that changes its reservation, in bytes.
const step = 64 << 10

// reservations is the memory that is reserved for a request and its answer.
type reservations struct {
	reservation memory.Reservation
	request     int64 // bytes
	answer      int64 // bytes
	buffered    int64 // bytes of a stream, included in answer
}

// reserveRequest sets the request's part to n bytes.
func (s *reservations) reserveRequest(n int64) error {
	if n == s.request && n > 0 {
		return nil
	}
	if err := s.reservation.Set(requestCost + n); err != nil {
		return err
	}
	s.request = n
	return nil
}

// reserveAnswer sets the answer's part to n bytes.
func (s *reservations) reserveAnswer(n int64) error {
	if n <= requestCost && s.answer == 0 {
		return nil
	}
	if err := s.reservation.Set(requestCost + s.request + n); err != nil {
		return err
	}
	s.answer = n
	return nil
}

// reserveBuffered sets the size of the stream's buffers to n bytes.
func (s *reservations) reserveBuffered(n int64) error {
	if change := n - s.buffered; -step < change && change < step {
		return nil
	}
	if err := s.reserveAnswer(s.answer + streamCost*(n-s.buffered)); err != nil {
		return err
	}
	s.buffered = n
	return nil
}

// costs are the bytes of memory for each byte of a body.
type costs struct {
	decoding int64 // of the request's body while it is decoded
	decoded  int64 // of the request's body after decoding
	encoding int64 // of a whole answer while it is translated
}

// bodyCost returns the memory for a body: n*each bytes, plus the encoder's buffers.
func bodyCost(n, each int64) int64 {
	if n < bodies.MinBody {
		return n * each
	}
	return n*each + bodies.Memory
}

// costs returns the costs in the request's dialect. The dialect of the upstream is chat.
func (ex *Exchange) costs() costs {
	if ex.Operation.Dialect == dialect.Chat {
		return costs{1, 1, rewriteCost}
	}
	return costs{translateCost, translatedCost, encodeCost}
}
