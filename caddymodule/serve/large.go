package serve

import (
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/queue"
)

// Large bodies are received and sent a few at a time. More at a time would not be faster,
// but would all be in memory. The queue is fair between owners of keys, and between their keys. A slow
// client, tunnel or model server delays others by at most largeHold, since its place is then given to the
// next body. The memory budget bounds what slow peers hold.
var buffering = queue.Name{Deployment: "buffering"}

const (
	largeBody   = 1 << 20                // bytes from which a body needs a place
	largeBodies = 3                      // places
	largeHold   = 500 * time.Millisecond // after which a place is given to the next body
	largeWait   = 5 * time.Second        // after which a request's body is received without a place
)

// largePlace is the place of a large body. It may be nil.
type largePlace struct {
	leave func() // once
	timer *time.Timer
}

// makeRoom waits for a place before a body grows to n bytes, unless it had one already.
func (c *completion) makeRoom(n int64, wait time.Duration) {
	if n < largeBody || c.exchange.held.place != nil {
		return
	}
	p := &largePlace{leave: func() {}}
	c.exchange.held.place = p
	place, err := c.takeTurn(c.ctx, buffering, wait)
	if err != nil {
		return // the memory budget still applies
	}
	p.leave = sync.OnceFunc(place.Leave)
	p.timer = time.AfterFunc(largeHold, p.leave)
}

// keep keeps the place, if the body still has it, until free.
func (p *largePlace) keep() {
	if p != nil && p.timer != nil {
		p.timer.Stop()
	}
}

// free gives the place to the next body.
func (p *largePlace) free() {
	if p != nil && p.timer != nil {
		p.timer.Stop()
		p.leave()
	}
}

// upload is the body of a request to the upstream. Close frees its place.
type upload struct {
	*dialect.Segments
	place *largePlace
}

// Close implements io.Closer.
func (u upload) Close() error {
	u.place.free()
	return u.Segments.Close()
}
