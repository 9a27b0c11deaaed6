package tunnel

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// handshakesAtOnce is how many connections may be between their first packet
	// and their hello at a time. When thousands come back at once, and all of them
	// shared the processors, none would be done before its connector gave it up.
	handshakesAtOnce = 64
	// passTime is how long one counts among them: one that its other side does not
	// finish must not keep the others out.
	passTime = 5 * time.Second
	// queueLength is how many may wait for that, with some 30 KB each. More are
	// refused, and come back.
	queueLength = 2048
	// queueTime is how long. Connectors wait longer for a gateway that has sent
	// anything at all.
	queueTime = 8 * time.Second
)

// errBusy refuses a connection; the dialler comes back after a pause.
var errBusy = errors.New("too many connectors come at once")

// turnstile lets handshakes begin. Those who wait are let in by turns over their
// addresses, so that one of them cannot keep the others waiting. The zero value
// is ready.
type turnstile struct {
	mu      sync.Mutex
	inside  int
	waiting int
	queues  map[netip.Addr][]*visitor
	turns   []netip.Addr // those with a queue; the next is the first
	closed  bool
}

// visitor waits at a turnstile.
type visitor struct {
	addr   netip.Addr
	called chan struct{} // closed when it may go in, and when the turnstile is closed
	inside bool
}

// pass is one handshake that has begun. It ends with leave, or by itself.
type pass struct {
	turnstile *turnstile
	left      bool
	timer     *time.Timer
}

// full tells whether nobody more may wait.
func (t *turnstile) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed || t.waiting >= queueLength
}

// enter waits until a connection from addr may begin its handshake.
func (t *turnstile) enter(ctx context.Context, addr netip.Addr) (*pass, error) {
	v, err := t.line(addr)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(queueTime)
	defer timer.Stop()
	select {
	case <-v.called:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = errBusy
	}
	return t.settle(v, err)
}

// line puts a visitor at the end of its address's queue.
func (t *turnstile) line(addr netip.Addr) (*visitor, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.waiting >= queueLength {
		return nil, errBusy
	}
	v := &visitor{addr: addr, called: make(chan struct{})}
	if t.queues == nil {
		t.queues = make(map[netip.Addr][]*visitor)
	}
	if len(t.queues[addr]) == 0 {
		t.turns = append(t.turns, addr)
	}
	t.queues[addr] = append(t.queues[addr], v)
	t.waiting++
	t.call()
	return v, nil
}

// settle ends a wait, with a pass for a visitor who was called: that may have
// been at the moment when it gave up.
func (t *turnstile) settle(v *visitor, gaveUp error) (*pass, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case v.inside:
		p := &pass{turnstile: t}
		p.timer = time.AfterFunc(passTime, p.leave)
		return p, nil
	case gaveUp == nil: // the turnstile was closed
		return nil, errBusy
	default:
		t.remove(v)
		return nil, gaveUp
	}
}

// remove takes a visitor who has given up out of its queue, at once: those who
// come only to give up would fill the memory, and cost their address its turns.
// The caller holds the lock.
func (t *turnstile) remove(v *visitor) {
	queue := t.queues[v.addr]
	at := slices.Index(queue, v)
	if at < 0 { // the turnstile was closed
		return
	}
	t.waiting--
	if queue = slices.Delete(queue, at, at+1); len(queue) > 0 {
		t.queues[v.addr] = queue
		return
	}
	delete(t.queues, v.addr)
	at = slices.Index(t.turns, v.addr)
	t.turns = slices.Delete(t.turns, at, at+1)
}

// call lets in as many as there is room for. The caller holds the lock.
func (t *turnstile) call() {
	for t.inside < handshakesAtOnce && t.waiting > 0 {
		addr := t.turns[0]
		queue := t.queues[addr]
		v := queue[0]
		t.turns = t.turns[1:]
		if len(queue) == 1 {
			delete(t.queues, addr)
		} else {
			t.queues[addr] = queue[1:]
			t.turns = append(t.turns, addr)
		}
		v.inside = true
		close(v.called)
		t.waiting--
		t.inside++
	}
}

// close sends away those who wait.
func (t *turnstile) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, queue := range t.queues {
		for _, v := range queue {
			close(v.called)
		}
	}
	t.waiting, t.queues, t.turns = 0, nil, nil
}

// leave makes room for the next one.
func (p *pass) leave() {
	p.turnstile.mu.Lock()
	defer p.turnstile.mu.Unlock()
	if p.left {
		return
	}
	p.left = true
	p.timer.Stop()
	p.turnstile.inside--
	p.turnstile.call()
}
