package link

import (
	"errors"
	"io"
	"slices"
	"sync"
)

// errUploadStopped is what a Write returns when the other side does not want the
// rest.
var errUploadStopped = errors.New("the other side takes no more of the request")

// upload is the body of an HTTP/2 request that is written bit by bit. A Write
// returns when its bytes are taken into a buffer, so that a small request is
// complete before anybody reads it.
type upload struct {
	mu     sync.Mutex
	change sync.Cond // of what follows
	data   []byte    // to be sent
	held   *buffer   // the buffer that data is in, if it is a shared one
	ended  bool      // no more will be written
	err    error     // of Write from now on, and of Read
}

func (u *upload) init() { u.change.L = &u.mu }

// Write implements io.Writer.
func (u *upload) Write(p []byte) (n int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.data) > 0 && u.err == nil {
		u.change.Wait()
	}
	if u.err != nil {
		return 0, u.err
	}
	if len(p) > largeBuffer { // a large head, or control message
		u.data = slices.Clone(p)
	} else {
		u.held = getBuffer(len(p))
		u.data = append(u.held.array[:0], p...)
	}
	u.change.Broadcast()
	return len(p), nil
}

// Read implements io.Reader, for HTTP/2.
func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.data) == 0 && !u.ended && u.err == nil {
		u.change.Wait()
	}
	if u.err != nil {
		return 0, u.err
	}
	n := copy(p, u.data)
	if u.data = u.data[n:]; len(u.data) == 0 {
		u.drop()
		if u.ended {
			return n, io.EOF
		}
	}
	return n, nil
}

// end ends the body cleanly.
func (u *upload) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	u.change.Broadcast()
}

// stop makes the writes fail that wait or are to come.
func (u *upload) stop(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		u.err = err
	}
	u.drop()
}

// drop gives the buffer back and wakes those who wait. The lock is held.
func (u *upload) drop() {
	u.held.put()
	u.held, u.data = nil, nil
	u.change.Broadcast()
}

// Close implements io.Closer, for HTTP/2.
func (u *upload) Close() error {
	u.stop(errUploadStopped)
	return nil
}
