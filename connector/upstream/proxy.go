package upstream

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/link/blocks"
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
func StatusClass(status int) string {
	if classes := [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}; status >= 100 && status < 600 {
		return classes[status/100-1]
	}
	return strconv.Itoa(status/100) + "xx"
}

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
// missing or incomplete answer is reset with the reason. The end of the request's context
// cancels the request to the upstream.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The result in case of a panic.
	done := Request{At: time.Now(), Method: r.Method, Result: link.CodeInternal.String()}
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
	code := link.CodeRefused
	if u != nil {
		code = p.serve(w, r, u, &done)
	} else {
		p.refusals.Log(p.options.Logger, slog.LevelWarn, "", time.Now(), "refusing a request",
			"upstream", text.Short(r.Host), "method", text.Short(r.Method), "path", text.Short(r.URL.Path))
	}
	if code == link.CodeNone {
		done.Result = StatusClass(done.Status)
		return
	}
	done.Result = code.String()
	if u != nil {
		p.options.Prober.failed(u, code)
	}
	// All writers of the tunnel have Abort.
	w.(interface{ Abort(link.Code) }).Abort(code)
}

// serve forwards a request and relays the answer. It returns the reason if the answer is
// missing or incomplete.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, u *Server, done *Request) link.Code {
	body, err := readPayload(p.options.Budget, r.Body, r.ContentLength)
	if err != nil {
		code := link.CodeCancelled // the tunnel broke
		switch {
		case errors.Is(err, errTooLarge):
			code = link.CodeTooLarge
		case errors.Is(err, memory.ErrExceeded):
			code = link.CodeBusy
		case errors.Is(err, blocks.ErrMalformed):
			code = link.CodeInternal
		case errors.Is(err, blocks.ErrUnknownBlock):
			return link.CodeUnknownBlock // the gateway sends it again
		}
		if code != link.CodeCancelled {
			p.refusals.Log(p.options.Logger, slog.LevelWarn, u.Name, time.Now(), "refusing a request", "upstream", u.Name,
				"error", err)
		}
		return code
	}
	defer body.release()
	answer, err := u.roundTrip(r, body.data)
	switch {
	case err == nil:
	case r.Context().Err() != nil:
		return link.CodeCancelled
	case errors.Is(err, ErrNotConnected):
		// The prober already logs a warning.
		p.options.Logger.Debug("upstream is down", "upstream", u.Name, "error", err)
		return link.CodeUpstreamDown
	default:
		return p.broken(u, "upstream failed before its answer", err)
	}
	defer answer.Close()
	done.Status = answer.StatusCode
	p.options.Prober.answered(u, answer.StatusCode)
	err = relay(w, answer, &done.Bytes)
	switch {
	case err == nil:
		return link.CodeNone
	case r.Context().Err() != nil, errors.Is(err, errClientGone):
		return link.CodeCancelled
	default:
		return p.broken(u, "upstream failed during its answer", err)
	}
}

// broken logs why an answer is missing or incomplete, and returns the code.
func (p *Proxy) broken(u *Server, message string, err error) link.Code {
	code := link.CodeUpstreamReset
	if errors.Is(err, link.ErrMalformed) {
		message, code = "upstream sent an answer that is not valid HTTP", link.CodeUpstreamMalformed
	}
	p.failures.Log(p.options.Logger, slog.LevelWarn, u.Name, time.Now(), message, "upstream", u.Name, "error", err)
	return code
}

// errClientGone means that the tunnel broke, or that the client has disconnected.
var errClientGone = errors.New("the client does not read the rest of the answer")

// relay copies the answer with one write for each read, so that events are not delayed.
func relay(w http.ResponseWriter, answer *answer, written *int64) error {
	copyAnswer(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	if answer.isSilent() {
		// Some clients wait for the header, and the first event may take minutes.
		w.(http.Flusher).Flush()
	}
	chunk := chunks.Get().(*[]byte)
	defer chunks.Put(chunk)
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
	}
}
