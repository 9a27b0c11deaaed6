package serve

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
)

// answer writes the answer to one client. While a streamed answer is silent it
// sends pings from a timer, even before the upstream's headers are there;
// hence the lock, under which alone the stream is touched.
//
// A client that takes no byte for 60 s is cut by Caddy's write_idle timeout,
// which covers each Write and Flush; it must be, since a stalled client holds
// a slot of the model and window of the tunnel.
type answer struct {
	w http.ResponseWriter

	mu       sync.Mutex
	control  *http.ResponseController // nil before the first event
	stream   dialect.Stream           // nil for an answer that is whole
	pings    *time.Timer
	interval time.Duration // of silence between pings
	sent     time.Time     // when the last bytes went out
	first    time.Time     // when the first of the model's answer went out
	status   int           // 0 until the header is written
	ended    bool
	left     bool  // the client went away before the end
	err      error // the first failed write
}

// progress is how far a stream is.
type progress struct {
	gone     bool           // the client is
	finished bool           // the answer is complete; only usage may follow
	done     bool           // the client has the end of its stream
	err      *dialect.Error // what ended it, nil if nothing did
	held     int64          // bytes that the stream remembers
}

// newAnswer returns the answer to a request that came through w.
func newAnswer(w http.ResponseWriter) *answer {
	return &answer{w: w}
}

// open makes the answer a stream, which never stays silent for longer than
// interval: it is opened or sends a ping then, and is committed to the status
// 200. 0 or less means no pings.
func (a *answer) open(s dialect.Stream, interval time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stream = s
	if interval > 0 {
		a.interval, a.sent = interval, time.Now()
		a.pings = time.AfterFunc(interval, a.tick)
	}
}

// tick is called by the timer, which is not reset at each event: that would cost
// more than to look when the last bytes went out.
func (a *answer) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended || a.err != nil {
		return
	}
	if rest := a.interval - time.Since(a.sent); rest > 0 {
		a.pings.Reset(rest)
		return
	}
	a.writeEvent(a.stream.Ping())
	a.pings.Reset(a.interval)
}

// begin sends what opens the stream, if its dialect has that, when the upstream
// has begun to answer.
func (a *answer) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writeEvent(a.stream.Begin())
}

// feed translates bytes of the upstream and sends them. An error that ends the stream
// before anything was sent is returned: the client then gets its status.
func (a *answer) feed(p []byte) (progress, *dialect.Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.forward(a.stream.Feed(p))
}

// finish ends the stream; cause is the error that broke the upstream's.
func (a *answer) finish(cause *dialect.Error) *dialect.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, derr := a.forward(a.stream.End(cause))
	return derr
}

// forward sends what the stream gave.
func (a *answer) forward(out []byte) (progress, *dialect.Error) {
	p := progress{finished: a.stream.Finished(), done: a.stream.Done(), err: a.stream.Err(), held: a.stream.Held()}
	if p.err != nil && a.status == 0 {
		return p, p.err
	}
	a.writeEvent(out)
	p.gone = a.err != nil
	if a.first.IsZero() && p.err == nil && len(out) > 0 {
		if u, _ := a.stream.Usage(); u.CompletionTokens > 0 { // not the role alone, with which servers open streams
			a.first = a.sent
		}
	}
	return p, nil
}

// usage is what the stream cost, as the upstream reported or by an estimate, which
// may be without the prompt.
func (a *answer) usage() dialect.Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	u, _ := a.stream.Usage()
	return u
}

// committed reports whether the header is out, so that an error can only go
// into the stream.
func (a *answer) committed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status != 0
}

// writeEvent sends bytes of a stream to the client at once, in one Write: some
// clients lose events that come in two.
func (a *answer) writeEvent(p []byte) {
	if len(p) == 0 || a.ended || a.err != nil {
		return
	}
	if a.status == 0 {
		h := a.w.Header()
		h["Content-Type"] = contentEventStream
		h["Cache-Control"] = noCache
		h["X-Accel-Buffering"] = noBuffering
		a.status = http.StatusOK
		a.w.WriteHeader(http.StatusOK)
	}
	a.sent = time.Now()
	if _, err := a.w.Write(p); err != nil {
		a.err = err
		return
	}
	if a.control == nil {
		a.control = http.NewResponseController(a.w)
	}
	a.err = a.control.Flush()
}

// Header values that every stream shares; net/http does not change them.
var (
	contentEventStream = []string{"text/event-stream"}
	contentJSON        = []string{"application/json"}
	noCache            = []string{"no-cache"}
	noBuffering        = []string{"no"}
)

// cut reports whether the client did not take all that was sent, and its
// connection does not know: a failed write ends a connection of HTTP/1.1 and a
// stream of HTTP/2, but not one of HTTP/3.
func (a *answer) cut(protoMajor int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err != nil && (protoMajor == 3 || errors.Is(a.err, errTooSlow))
}

// end stops the pings; nothing is sent after it. It returns the status that
// the client was given, and when the first content of a stream went out, zero
// if none has.
func (a *answer) end() (status int, first time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop()
	return a.status, a.first
}

// stop does end's work under the lock.
func (a *answer) stop() {
	a.ended = true
	if a.pings != nil {
		a.pings.Stop()
	}
}

// whole sends a complete JSON answer.
func (a *answer) whole(status int, body []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writeWhole(status, body)
	return a.err
}

// writeWhole does whole's work under the lock. The body goes in small pieces,
// each with a write_idle of its own: a client is cut for standing still, or for
// being slower than leastProgress.
func (a *answer) writeWhole(status int, body []byte) {
	a.stop()
	h := a.w.Header()
	h["Content-Type"] = contentJSON
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	a.status = status
	a.w.WriteHeader(status)
	const piece = 16 << 10
	start := time.Now()
	for written := 0; written < len(body) && a.err == nil; {
		n := min(len(body)-written, piece)
		if tooSlow(start, int64(written)) {
			a.err = errTooSlow
			return
		}
		_, a.err = a.w.Write(body[written : written+n])
		written += n
	}
}

// fail ends the answer with an error: as an HTTP answer, or, if the stream has
// begun or is to begin for it, as its last event.
func (a *answer) fail(d dialect.Dialect, requestID string, e *dialect.Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status != 0 || a.stream != nil && e.InStream(d) {
		if a.stream != nil {
			a.writeEvent(a.stream.End(e))
		}
		a.stop()
		return
	}
	h := a.w.Header()
	for name, value := range e.Header() {
		h[name] = value
	}
	a.writeWhole(e.HTTPStatus(d), e.Body(d, requestID))
}

// outcome is the status for the activity: of a stream that broke off, that of its
// error, although its client was given 200 at its beginning.
func (a *answer) outcome(d dialect.Dialect) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.left, a.err != nil:
		return statusClientGone
	case a.stream != nil && a.stream.Err() != nil:
		return a.stream.Err().HTTPStatus(d)
	}
	return a.status
}

// abandon ends the answer to a client that is gone; the status is for the log.
func (a *answer) abandon() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop()
	a.left = true
	if a.status == 0 {
		a.status = statusClientGone
		a.w.WriteHeader(a.status)
	}
}

// statusClientGone is logged for a client that left before its answer.
const statusClientGone = 499
