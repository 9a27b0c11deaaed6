package agent

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	dialTimeout = 10 * time.Second
	// upstreamIdle is below the 5 s after which the common model servers close
	// an idle connection, so that a request rarely meets one that is closing.
	upstreamIdle = 4 * time.Second
	// staleWithin is how soon a connection that was closed while idle fails.
	// What fails later was at work on the request: it is not sent again.
	staleWithin = time.Second
	// chunkBytes is one read of the upstream's answer, and one write to the
	// tunnel.
	chunkBytes = 32 << 10
	// maxAnswerHeader bounds the header of an upstream's answer.
	maxAnswerHeader = 256 << 10
)

// upstream is one model server that the proxy may speak to.
type upstream struct {
	name      string
	base      *url.URL // ends in /v1
	key       *keyFile // nil: it asks for none
	transport *http.Transport
}

// newUpstream has a transport of its own, so that dropping the idle connections
// of one upstream leaves the others alone.
func newUpstream(name string, base *url.URL, key *keyFile) *upstream {
	return &upstream{name: name, base: base, key: key, transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: dialTimeout,
		// Answers pass as they are; and a model may think for an hour before
		// its first header, so there is no ResponseHeaderTimeout.
		DisableCompression:     true,
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        upstreamIdle,
		MaxResponseHeaderBytes: maxAnswerHeader,
		WriteBufferSize:        chunkBytes,
		ReadBufferSize:         chunkBytes,
	}}
}

// proxy hands requests from the tunnel to upstreams. Its ServeHTTP is all that
// a transport of the tunnel needs.
type proxy struct {
	upstreams map[string]*upstream
	logger    *slog.Logger
	bodies    buffers
	chunks    sync.Pool // of *[]byte, chunkBytes long
}

func newProxy(upstreams map[string]*upstream, logger *slog.Logger) *proxy {
	return &proxy{
		upstreams: upstreams,
		logger:    logger,
		chunks:    sync.Pool{New: func() any { b := make([]byte, chunkBytes); return &b }},
	}
}

// close drops idle connections to the upstreams.
func (p *proxy) close() {
	for _, u := range p.upstreams {
		u.transport.CloseIdleConnections()
	}
}

// ServeHTTP passes one request to the upstream that its Host names and relays
// the answer. An answer that cannot be had, or that ends early, ends with a
// reset that names the reason and never with a clean end. When the request's
// context ends, so does the upstream's work on it.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u := p.upstreams[r.Host]
	if u == nil || !allowed(r) {
		p.logger.Warn("refusing a request", "upstream", r.Host, "method", r.Method)
		abort(w, link.CodeRefused)
		return
	}
	body, err := readPayload(&p.bodies, r.Body, r.ContentLength)
	if err != nil {
		// Otherwise the tunnel broke: there is nobody left to answer.
		if errors.Is(err, errTooLarge) {
			p.logger.Warn("refusing a request", "upstream", u.name, "error", err)
			abort(w, link.CodeTooLarge)
		} else {
			abort(w, link.CodeCancelled)
		}
		return
	}
	defer body.release()

	answer, code := p.send(u, r, body)
	if answer == nil {
		abort(w, code)
		return
	}
	defer answer.Body.Close()
	p.relay(w, r, u, answer)
}

// allowed tells whether a request may reach an upstream: only plain paths under
// /v1, so that nothing else of the model server can be touched, however the
// path is spelled.
func allowed(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return false
	}
	p := r.URL.Path
	if r.URL.Scheme != "" || r.URL.Host != "" || r.URL.Opaque != "" || r.URL.RawPath != "" {
		return false
	}
	if !strings.HasPrefix(p, "/v1/") || path.Clean(p) != p {
		return false
	}
	for _, b := range []byte(p) {
		if b <= ' ' || b >= 0x7f || strings.IndexByte(`\%?#;"<>^{|}`+"`", b) >= 0 {
			return false
		}
	}
	return true
}

// send makes the request of the upstream. Without an answer it returns the code
// that says why.
func (p *proxy) send(u *upstream, r *http.Request, body *payload) (*http.Response, link.Code) {
	u.readdress(r)
	for again := false; ; again = true {
		t := &attempt{}
		t.trace.GotConn = t.gotConn
		try := r.WithContext(httptrace.WithClientTrace(r.Context(), &t.trace))
		if len(*body.data) > 0 {
			try.ContentLength = int64(len(*body.data))
			try.Body = body.open()
			try.GetBody = func() (io.ReadCloser, error) { return body.open(), nil }
		}
		answer, err := u.transport.RoundTrip(try)
		switch {
		case err == nil && answer.StatusCode != http.StatusSwitchingProtocols:
			return answer, 0
		case err == nil:
			answer.Body.Close()
			return nil, link.CodeUpstreamReset
		case r.Context().Err() != nil:
			return nil, link.CodeCancelled
		case t.stale() && !again:
			// The upstream closed an idle connection just when the request went
			// out; net/http repeats only what it knows was never sent. The other
			// idle connections are as old, so the second try gets a new one.
			u.transport.CloseIdleConnections()
			continue
		case t.at.IsZero():
			p.logger.Warn("upstream is down", "upstream", u.name, "error", err)
			return nil, link.CodeUpstreamDown
		default:
			p.logger.Warn("upstream broke off before its answer", "upstream", u.name, "error", err)
			return nil, link.CodeUpstreamReset
		}
	}
}

// readdress turns the tunnel's request into one for the upstream, in place:
// nobody else needs it any more.
func (u *upstream) readdress(r *http.Request) {
	authorization := ""
	if u.key != nil {
		authorization = u.key.authorization()
	}
	cleanRequest(r.Header, authorization)
	r.URL.Scheme, r.URL.Host = u.base.Scheme, u.base.Host
	if u.base.Path != "/v1" {
		r.URL.Path = strings.TrimSuffix(u.base.Path, "/v1") + r.URL.Path
	}
	r.Host = u.base.Host
	r.RequestURI = ""
	r.Close = false
	r.TransferEncoding, r.Trailer = nil, nil
	r.Body, r.GetBody, r.ContentLength = nil, nil, 0
}

// attempt watches one try of a request.
type attempt struct {
	trace  httptrace.ClientTrace
	at     time.Time // when it had a connection; zero: it never had one
	reused bool
}

func (t *attempt) gotConn(info httptrace.GotConnInfo) {
	t.at, t.reused = time.Now(), info.Reused
}

// stale tells whether a failure looks like that of a connection that the
// upstream had closed while it was idle.
func (t *attempt) stale() bool {
	return t.reused && time.Since(t.at) < staleWithin
}

// relay copies the answer, one write for each read: an event of a stream leaves
// as soon as it comes.
func (p *proxy) relay(w http.ResponseWriter, r *http.Request, u *upstream, answer *http.Response) {
	copyAnswer(w.Header(), answer.Header)
	w.WriteHeader(answer.StatusCode)
	chunk := p.chunks.Get().(*[]byte)
	defer p.chunks.Put(chunk)
	for {
		n, err := answer.Body.Read(*chunk)
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
	p.logger.Warn("upstream broke off in its answer", "upstream", u.name, "error", err)
	abort(w, link.CodeUpstreamReset)
}

// abort ends an answer with a reset. The transports of the tunnel give out
// writers that can do so.
func abort(w http.ResponseWriter, code link.Code) {
	w.(interface{ Abort(link.Code) }).Abort(code)
}
