package upstream

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/logs"
	"github.com/postern-dev/postern/connector/memory"
	"github.com/postern-dev/postern/connector/text"
)

// Options are shared by the proxies of a connector.
type Options struct {
	Logger *slog.Logger
	Budget *memory.Budget // of request bodies; nil: unbounded
	Prober *Prober
	// Observer is notified of each request. It may be nil.
	Observer Observer
}

// Observer is notified of the requests that a [Proxy] serves.
type Observer interface {
	// Begin is called when a request for an upstream begins; the name is "" if the
	// request is refused.
	Begin(upstream string)
	End(Request)
}

// Request describes a finished request. A refused request has no upstream and path, as these
// are arbitrary.
type Request struct {
	At       time.Time     `json:"at"` // start
	Method   string        `json:"method"`
	Path     string        `json:"path"`
	Upstream string        `json:"upstream"`
	Status   int           `json:"status,omitempty"`
	Result   string        `json:"result"` // "2xx" to "5xx", or a reason
	Duration time.Duration `json:"duration_ns"`
	Bytes    int64         `json:"bytes"` // of the answer
}

// StatusClass returns the class of an HTTP status, as in metrics.
func StatusClass(status int) string { return strconv.Itoa(status/100) + "xx" }

// Proxy forwards requests from the tunnel to upstreams.
type Proxy struct {
	options Options
	set     atomic.Pointer[Set]

	refusals, failures logs.Sampler[string] // by upstream
}

// NewProxy returns a proxy to the upstreams of a set.
func NewProxy(set Set, o Options) *Proxy {
	p := &Proxy{options: o}
	p.Use(set)
	return p
}

// Use replaces the upstreams. Running requests keep theirs.
func (p *Proxy) Use(set Set) { p.set.Store(&set) }

// Upstreams returns the upstreams that the proxy uses.
func (p *Proxy) Upstreams() Set { return *p.set.Load() }

// ServeHTTP forwards a request to the upstream that its Host names, and relays the answer. A
// missing or incomplete answer ends with the reason. The end of the request's context
// cancels the request to the upstream.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tunnel := w.(tunnelWriter)
	// The result in case of a panic.
	done := Request{At: time.Now(), Method: r.Method, Result: link.ErrInternal.Name}
	u := p.Upstreams()[r.Host]
	if u != nil && u.allows(r) {
		done.Path, done.Upstream = r.URL.Path, u.Name
	} else {
		u = nil
	}
	if observer := p.options.Observer; observer != nil {
		observer.Begin(done.Upstream)
		defer func() {
			done.Duration = time.Since(done.At)
			observer.End(done)
		}()
	}
	failed := link.ErrRefused
	if u != nil {
		failed = p.serve(tunnel, r, u, &done)
	} else {
		p.refusals.Log(p.options.Logger, slog.LevelWarn, "", time.Now(), "refusing a request",
			"upstream", text.Short(r.Host), "method", text.Short(r.Method), "path", text.Short(r.URL.Path))
	}
	if failed == nil {
		done.Result = StatusClass(done.Status)
		return
	}
	done.Result = failed.Name
	if u != nil {
		p.options.Prober.failed(u, failed)
	}
	tunnel.Abort(failed)
}

// tunnelWriter is what all writers of the tunnel are: see [link.Serve].
type tunnelWriter interface {
	http.ResponseWriter
	Abort(*link.Failure)
	StopReading()
}

// serve forwards a request and relays the answer. It returns the reason if the answer is
// missing or incomplete, else nil.
func (p *Proxy) serve(w tunnelWriter, r *http.Request, u *Server, done *Request) *link.Failure {
	up, err := u.open(p.options.Budget, r, w.StopReading)
	message := "upstream failed before its answer"
	if err == nil {
		defer up.release()
		var answer *modelAnswer
		if answer, err = u.roundTrip(r.Context(), up); err == nil {
			defer answer.Close()
			done.Status, message = answer.StatusCode, "upstream failed during its answer"
			p.options.Prober.answered(u, answer.StatusCode)
			err = relay(w, answer, &done.Bytes)
		}
	}
	var refused *link.Failure
	switch {
	case err == nil:
		return nil
	case r.Context().Err() != nil, errors.Is(err, errClientGone):
		return link.ErrCancelled
	case errors.As(err, &refused):
		if refused != link.ErrCancelled {
			p.refusals.Log(p.options.Logger, slog.LevelWarn, u.Name, time.Now(), "refusing a request", "upstream", u.Name,
				"error", err)
		}
		return refused
	case done.Status == 0 && errors.Is(err, ErrNotConnected):
		// The prober already logs a warning.
		p.options.Logger.Debug("upstream is down", "upstream", u.Name, "error", err)
		return link.ErrUpstreamDown
	}
	return p.broken(u, message, err)
}

// broken logs why an answer is missing or incomplete, and returns the failure.
func (p *Proxy) broken(u *Server, message string, err error) *link.Failure {
	failed := link.ErrUpstreamReset
	if errors.Is(err, link.ErrMalformed) {
		message, failed = "upstream sent an answer that is not valid HTTP", link.ErrUpstreamMalformed
	}
	p.failures.Log(p.options.Logger, slog.LevelWarn, u.Name, time.Now(), message, "upstream", u.Name, "error", err)
	return failed
}

// errClientGone means that the tunnel broke, or that the client has disconnected.
var errClientGone = errors.New("the client does not read the rest of the answer")

// smallChunks contains *[]byte. Thousands of event streams may run, whose events are small.
var smallChunks = sync.Pool{New: func() any { b := make([]byte, 4<<10); return &b }}

// relay copies the answer with one write for each read, so that events are not delayed. The buffer is small until a
// read fills it.
func relay(w http.ResponseWriter, answer *modelAnswer, written *int64) error {
	maps.DeleteFunc(answer.Header, notForClient)
	maps.Copy(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	if answer.isSilent() {
		// Some clients wait for the header, and the first event may take minutes.
		w.(http.Flusher).Flush()
	}
	pool := &smallChunks
	chunk := pool.Get().(*[]byte)
	defer func() { pool.Put(chunk) }()
	for {
		n, err := answer.Read(*chunk)
		if n > 0 {
			sent, err := w.Write((*chunk)[:n])
			if *written += int64(sent); err != nil {
				return errClientGone
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if n == len(*chunk) && pool == &smallChunks {
			pool.Put(chunk)
			pool = &chunks
			chunk = pool.Get().(*[]byte)
		}
	}
}
