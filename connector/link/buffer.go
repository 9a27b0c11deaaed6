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
	// largeBuffer holds a head, and a large chunk with its framing; or packets of a WebSocket.
	largeBuffer = largeChunk + smallBuffer
)

// Buffers are shared by all streams of a process. An idle tunnel should hold none.
var (
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, smallBuffer) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, largeBuffer) }}
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
