package link

import "sync"

const (
	// smallBuffer holds most heads, events and small bodies; each stream keeps
	// one for reading while it waits.
	smallBuffer = 4 << 10
	// largeChunk is the most body bytes in one write.
	largeChunk = 32 << 10
	// largeBuffer holds a large chunk with its framing, and a head before it.
	largeBuffer = largeChunk + smallBuffer
)

// Buffers are shared by all streams of a process: they carry no state, and a
// tunnel that is idle should hold none.
var (
	smallBuffers = sync.Pool{New: func() any { return &buffer{array: make([]byte, smallBuffer)} }}
	largeBuffers = sync.Pool{New: func() any { return &buffer{array: make([]byte, largeBuffer)} }}
)

// buffer is a reusable byte slice.
type buffer struct {
	array []byte
}

// getBuffer returns a buffer for about n bytes, at most largeBuffer.
func getBuffer(n int) *buffer {
	if n <= smallBuffer {
		return smallBuffers.Get().(*buffer)
	}
	return largeBuffers.Get().(*buffer)
}

// put gives the buffer back; nil is fine.
func (b *buffer) put() {
	switch {
	case b == nil:
	case len(b.array) == smallBuffer:
		smallBuffers.Put(b)
	default:
		largeBuffers.Put(b)
	}
}
