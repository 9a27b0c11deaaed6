package link

import (
	"bufio"
	"io"
	"sync"
)

const (
	// smallBuffer holds most heads, events and small bodies. Each stream keeps one while
	// it waits for data.
	smallBuffer = 4 << 10
	// largeChunk is the maximum number of body bytes in one write.
	largeChunk = 32 << 10
	// largeBuffer holds a head, and a large chunk with its framing.
	largeBuffer = largeChunk + smallBuffer
)

// Buffers are shared by all streams of a process. An idle tunnel should hold none.
var (
	smallBuffers = sync.Pool{New: func() any { return &buffer{array: make([]byte, smallBuffer)} }}
	largeBuffers = sync.Pool{New: func() any { return &buffer{array: make([]byte, largeBuffer)} }}
	readers      = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, smallBuffer) }}
	writers      = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, largeBuffer) }}
)

// getWriter returns a pooled writer to w.
func getWriter(w io.Writer) *bufio.Writer {
	b := writers.Get().(*bufio.Writer)
	b.Reset(w)
	return b
}

// putWriter returns a writer to its pool, and drops its buffered bytes.
func putWriter(b *bufio.Writer) {
	b.Reset(nil)
	writers.Put(b)
}

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

// put returns the buffer to its pool. b may be nil.
func (b *buffer) put() {
	switch {
	case b == nil:
	case len(b.array) == smallBuffer:
		smallBuffers.Put(b)
	default:
		largeBuffers.Put(b)
	}
}
