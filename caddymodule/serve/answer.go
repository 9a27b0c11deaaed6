package serve

import (
	"errors"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/connector/panics"
)

// answer writes the answer to one client. A timer sends pings while a streamed
// answer is silent, even before the upstream's headers arrive, so mu guards
// every use of the stream.
//
// Caddy's write_idle timeout covers each Write and Flush. It must be set, because
// a stalled client occupies the model and the tunnel's flow control window.
type answer struct {
	w http.ResponseWriter

	mu       sync.Mutex
	control  *http.ResponseController // nil before the first event
	stream   dialect.Stream           // nil for an answer that is not streamed
	pings    *time.Timer
	interval time.Duration // of silence between pings
	sent     time.Time     // when the last bytes went out
	first    time.Time     // when the first content of the answer went out
	writing  time.Duration // in which the client did not read
	untimed  bool          // the time of the first token is unknown: the answer was no stream, or of a media operation
	status   int           // 0 until the header is written
	ended    bool
	left     bool           // the client disconnected before the end
	torn     bool           // a panic ended the answer after its beginning
	crashed  *panics.Error  // of a ping
	err      error          // the first failed write
	failure  *dialect.Error // the error that was sent, unless the stream has it
}

// progress is the state of a stream after a step.
type progress struct {
	gone     bool           // the client disconnected
	begun    bool           // the first content went out
	finished bool           // the answer is complete; only usage may follow
	done     bool           // the end of the stream was sent to the client
	err      *dialect.Error // the error that ended the stream, or nil
	buffered int64          // bytes of the answer in the stream
}

// open makes the answer a stream. After each interval of silence a ping is sent;
// the first one opens the stream and commits it to status 200. An interval of 0
// or less disables pings. If the answer is a stream already, s continues it.
func (a *answer) open(s dialect.Stream, interval time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stream != nil && a.status != 0 {
		dialect.Continue(s, a.stream)
	}
	a.stream = s
	if interval > 0 && a.pings == nil {
		a.interval, a.sent = interval, time.Now()
		a.pings = time.AfterFunc(interval, a.tick)
	}
}

// tick is called by the timer. Comparing the time of the last write is cheaper
// than resetting the timer at each event. The next step of the request raises a panic of tick again:
// a stream opens with an estimate, which could panic.
func (a *answer) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.crashed = panics.Caught(recover()) }()
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

// feed translates the upstream's bytes and sends them. It returns an error that
// ended the stream before anything was sent; the client then gets its status.
func (a *answer) feed(p []byte) (progress, *dialect.Error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.raiseCrash()
	return a.sendOutput(a.stream.Feed(p))
}

// endStream ends the stream. cause is the error that broke the upstream's stream.
func (a *answer) endStream(cause *dialect.Error) *dialect.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.raiseCrash()
	_, derr := a.sendOutput(a.stream.End(cause))
	return derr
}

// endWithVerdicts sends the end of an answer that has waited for verdicts.
func (a *answer) endWithVerdicts(g *dialect.Safeguard) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.raiseCrash()
	if a.stream == nil {
		a.writeWhole(http.StatusOK, g.End())
	} else {
		a.writeEvent(g.End())
	}
}

// raiseCrash raises the panic of a ping again.
func (a *answer) raiseCrash() {
	if p := a.crashed; p != nil {
		a.crashed = nil
		panic(p)
	}
}

// sendOutput sends the output of the stream.
func (a *answer) sendOutput(out []byte) (progress, *dialect.Error) {
	p := progress{finished: a.stream.Finished(), done: a.stream.Done(), err: a.stream.Err(), buffered: a.stream.Buffered()}
	if p.err != nil && a.status == 0 {
		return p, p.err
	}
	a.writeEvent(out)
	p.gone = a.err != nil
	if a.first.IsZero() && !a.untimed && p.err == nil && len(out) > 0 {
		if u, _ := a.stream.Usage(); u.CompletionTokens > 0 { // servers open streams with the role alone
			a.first = a.sent
		}
	}
	p.begun = !a.first.IsZero()
	return p, nil
}

// usage returns the token usage of a stream, see [dialect.Stream].
func (a *answer) usage() dialect.Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	u, _ := a.stream.Usage()
	return u
}

// committed reports whether the header was sent. An error can then only be sent
// in the stream.
func (a *answer) committed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status != 0
}

// writeEvent sends p to the client in a single Write and flushes it. Some clients
// lose events that arrive in two pieces.
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
	a.writing += time.Since(a.sent)
}

const (
	typeJSON   = "application/json"
	typeEvents = "text/event-stream"
)

// Header values that every stream shares; net/http does not change them.
var (
	contentEventStream = []string{typeEvents}
	contentJSON        = []string{typeJSON}
	anyContent         = []string{"*/*"}
	noCache            = []string{"no-cache"}
	noBuffering        = []string{"no"}
)

// mustAbort reports whether the answer is incomplete and the connection must be aborted.
// A failed write ends an HTTP/1.1 connection and an HTTP/2 stream, but not an
// HTTP/3 stream.
func (a *answer) mustAbort(protoMajor int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.torn || a.err != nil && (protoMajor == 3 || errors.Is(a.err, errTooSlow))
}

// end stops the pings. Nothing is sent after it.
func (a *answer) end(d dialect.Dialect) Ending {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop()
	e := Ending{Status: a.status, Logged: a.status, First: a.first, writing: a.writing}
	switch {
	case a.left, a.err != nil:
		e.Logged, e.Class = activity.StatusClientGone, dialect.ClassCaller
		e.Code, e.Error = "client_left", "The client disconnected before the end of the answer."
	default:
		if fault := a.fault(); fault != nil {
			e.fail(fault)
			e.Logged = fault.HTTPStatus(d)
		}
	}
	return e
}

// fault returns the error that the client got, or nil. The caller holds the lock.
func (a *answer) fault() *dialect.Error {
	if a.stream != nil && a.stream.Err() != nil {
		return a.stream.Err()
	}
	return a.failure
}

// stop ends the answer. The caller holds the lock.
func (a *answer) stop() {
	a.ended = true
	if a.pings != nil {
		a.pings.Stop()
	}
}

// header adds headers, unless they were sent already, as with the first ping.
func (a *answer) header(h http.Header) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status == 0 {
		maps.Copy(a.w.Header(), h)
	}
}

// whole sends a complete JSON answer.
func (a *answer) whole(status int, body []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writeWhole(status, body)
	return a.err
}

// writeWhole sends a complete JSON answer. The caller holds the lock. The body is
// written in small pieces, so that write_idle applies to each. A client that
// stalls or is slower than minProgress is disconnected.
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

// passedHeaders are the fields of a model server's answer that describe its bytes.
var passedHeaders = [...]string{"Content-Type", "Content-Disposition", "Content-Length"}

// piece sends a piece of an answer that is neither JSON nor a stream of events, and flushes it. It reports false if the
// client is gone. No browser takes it for a page of the gateway's origin.
func (a *answer) piece(h http.Header, p []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status == 0 {
		for _, name := range passedHeaders {
			if v := h[name]; len(v) > 0 {
				a.w.Header()[name] = v
			}
		}
		if a.w.Header()["Content-Type"] == nil { // else net/http guesses it
			a.w.Header()["Content-Type"] = []string{"application/octet-stream"}
		}
		a.w.Header()["X-Content-Type-Options"] = []string{"nosniff"}
		a.w.Header()["Content-Security-Policy"] = []string{"sandbox"}
		a.w.Header()["X-Accel-Buffering"] = noBuffering
		a.status = http.StatusOK
		a.w.WriteHeader(a.status)
		a.control = http.NewResponseController(a.w)
	}
	if len(p) > 0 {
		if _, a.err = a.w.Write(p); a.err == nil {
			a.err = a.control.Flush()
		}
	}
	return a.err == nil
}

// tear cuts the answer because of an error. It reports false if nothing was sent.
func (a *answer) tear(derr *dialect.Error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status == 0 {
		return false
	}
	a.stop()
	a.torn, a.failure = true, derr
	return true
}

// fail ends the answer with an error. If a stream has started, or if the dialect starts one for the
// error, the error is its last event. Otherwise it is an HTTP answer.
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
	a.failure = e
	h := a.w.Header()
	maps.Copy(h, e.Header())
	a.writeWhole(e.HTTPStatus(d), e.Body(d, requestID))
}

// crash ends the answer after a panic. If the answer has begun, it is cut: the stream may be in any
// state. Otherwise the client gets an error.
func (a *answer) crash(d dialect.Dialect, requestID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failure = errCrashed
	if a.torn = a.status != 0; a.torn {
		a.stop()
		return
	}
	a.writeWhole(errCrashed.HTTPStatus(d), errCrashed.Body(d, requestID))
}

// abandon ends the answer to a client that has disconnected. The status is only logged.
func (a *answer) abandon() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop()
	a.left = true
	if a.status == 0 {
		a.status = activity.StatusClientGone
		a.w.WriteHeader(a.status)
	}
}
