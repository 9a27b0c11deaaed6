package agent

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/memory"
)

// chunkBytes is one read of the upstream's answer, and one write to the tunnel;
// also the most that is sent to the upstream in one write.
const chunkBytes = 32 << 10

// proxy hands requests from the tunnel to upstreams. Its ServeHTTP is all that
// a transport of the tunnel needs.
type proxy struct {
	upstreams atomic.Pointer[map[string]*upstream] // by name
	logger    *slog.Logger
	bodies    buffers
	budget    *memory.Budget // of bodies; nil: it has no end

	refusals, failures seldom // logged
}

func newProxy(upstreams map[string]*upstream, budget *memory.Budget, logger *slog.Logger) *proxy {
	p := &proxy{budget: budget, logger: logger}
	p.upstreams.Store(&upstreams)
	return p
}

// upstream returns the upstream of that name, or nil.
func (p *proxy) upstream(name string) *upstream { return (*p.upstreams.Load())[name] }

// close drops idle connections to the upstreams.
func (p *proxy) close() {
	for _, u := range *p.upstreams.Load() {
		u.idle.drop()
	}
}

// ServeHTTP passes one request to the upstream that its Host names and relays
// the answer. An answer that cannot be had, or that ends early, ends with a
// reset that names the reason and never with a clean end. When the request's
// context ends, so does the upstream's work on it.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u := p.upstream(r.Host)
	if u == nil || !u.allows(r) {
		p.refusals.warn(p.logger, "refusing a request", "upstream", legible(r.Host), "method", legible(r.Method), "path", legible(r.URL.Path))
		abort(w, link.CodeRefused)
		return
	}
	body, err := readPayload(&p.bodies, p.budget, r.Body, r.ContentLength)
	if err != nil {
		code := link.CodeCancelled // the tunnel broke: there is nobody left to answer
		switch {
		case errors.Is(err, errTooLarge):
			code = link.CodeTooLarge
		case errors.Is(err, memory.ErrExceeded):
			code = link.CodeBusy
		}
		if code != link.CodeCancelled {
			p.refusals.warn(p.logger, "refusing a request", "upstream", u.name, "error", err)
		}
		abort(w, code)
		return
	}
	defer body.release()

	answer, code := p.send(u, r, body)
	if answer == nil {
		abort(w, code)
		return
	}
	defer answer.finish()
	p.relay(w, r, u, answer)
}

// send makes the request of the upstream. Without an answer it returns the code
// that says why.
func (p *proxy) send(u *upstream, r *http.Request, body *payload) (*answer, link.Code) {
	u.readdress(r)
	answer, err := u.roundTrip(r, body)
	switch {
	case err == nil:
		return answer, 0
	case r.Context().Err() != nil:
		return nil, link.CodeCancelled
	case errors.Is(err, errNotConnected):
		// The prober warns once when it learns of this; each request is worth no line.
		p.logger.Debug("upstream is down", "upstream", u.name, "error", err)
		return nil, link.CodeUpstreamDown
	default:
		p.failures.warn(p.logger, "upstream broke off before its answer", "upstream", u.name, "error", err)
		return nil, link.CodeUpstreamReset
	}
}

// relay copies the answer, one write for each read: an event of a stream leaves
// as soon as it comes.
func (p *proxy) relay(w http.ResponseWriter, r *http.Request, u *upstream, answer *answer) {
	copyAnswer(w.Header(), answer.header)
	w.WriteHeader(answer.status)
	if answer.isSilent() {
		// The gateway opens some clients' streams with the header, and a model
		// may take minutes until its first event.
		w.(http.Flusher).Flush()
	}
	chunk := u.chunks.Get().(*[]byte)
	defer u.chunks.Put(chunk)
	for {
		n, err := answer.Read(*chunk)
		if n > 0 {
			if _, err := w.Write((*chunk)[:n]); err != nil {
				abort(w, link.CodeCancelled) // the tunnel broke, or the client left
				return
			}
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			p.brokenOff(w, r, u, err)
			return
		}
	}
}

// brokenOff ends an answer that the upstream did not finish.
func (p *proxy) brokenOff(w http.ResponseWriter, r *http.Request, u *upstream, err error) {
	if r.Context().Err() != nil {
		abort(w, link.CodeCancelled)
		return
	}
	p.failures.warn(p.logger, "upstream broke off in its answer", "upstream", u.name, "error", err)
	abort(w, link.CodeUpstreamReset)
}

// abort ends an answer with a reset. The transports of the tunnel give out
// writers that can do so.
func abort(w http.ResponseWriter, code link.Code) {
	w.(interface{ Abort(link.Code) }).Abort(code)
}
