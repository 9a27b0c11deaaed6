package serve

import (
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
)

// Large bodies are received and sent a few at a time. More at a time would not be faster,
// but all of them would be in memory. A slow client, tunnel or model server delays others by at most
// largeTime, because the next body then gets the permit. The memory budget bounds the slow bodies.
const (
	largeBody   = 1 << 20                // bytes from which a body needs a permit
	largeBodies = 3                      // permits
	largeTime   = 500 * time.Millisecond // after which the next body gets the permit
	largeWait   = 5 * time.Second        // after which a request's body is received without a permit
)

// largePermit is the permit of a large body. It may be nil.
type largePermit struct {
	leave func() // once
	timer *time.Timer
}

// awaitLarge waits for a permit before a body grows to n bytes, unless it had one already.
func (c *clientRequest) awaitLarge(n int64, wait time.Duration) {
	if n < largeBody || c.large != nil {
		return
	}
	c.large = &largePermit{leave: func() {}}
	if c.enter(c.ctx, c.bodies, wait) != nil {
		return // the memory budget still applies
	}
	c.large.leave = sync.OnceFunc(c.bodies.Leave)
	c.large.timer = time.AfterFunc(largeTime, c.large.leave)
}

// keep keeps the permit until release, if the body still has it.
func (p *largePermit) keep() {
	if p != nil && p.timer != nil {
		p.timer.Stop()
	}
}

// release gives the permit to the next body.
func (p *largePermit) release() {
	if p != nil && p.timer != nil {
		p.timer.Stop()
		p.leave()
	}
}

// upload is the body of a request to the upstream. Close releases its permit.
type upload struct {
	*dialect.Segments
	permit *largePermit
}

// Close implements io.Closer.
func (u upload) Close() error {
	u.permit.release()
	return u.Segments.Close()
}
