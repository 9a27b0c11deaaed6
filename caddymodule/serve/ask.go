package serve

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/panics"
)

// Question is a request of the console to a deployment.
type Question struct {
	Name       string            // of the operation, in the activity
	Deployment store.Deployment  // its fallback is not used
	Operation  dialect.Operation // of the body
	Body       []byte
	Type       string           // the Content-Type of the body; "": JSON
	Owner      string           // a user or an account, without a key
	Key        store.Credential // may be zero
	From       netip.Addr       // the address of the user, if there is a key
	Connector  string           // the id of the only one that may be used; "": any of the deployment
	// Measures means that the prompt measures the context window: it may be too long, and corrects no estimates.
	Measures bool
	// Idle means that the request is the gateway's own. No limits count it. A server that loads one model at a time gets
	// it only while the model is loaded. It ends with ErrRequested when another request waits.
	Idle bool
	Done func(error) // is called before the request is recorded; may be nil
}

// Asked describes how a [Question] was served.
type Asked struct {
	Connector string    // id of the chosen connector, "": none
	Sent      time.Time // when the last attempt was sent to the model server
	Usage     dialect.Usage
}

// Whole is a whole answer, and implements http.ResponseWriter.
type Whole struct {
	bytes.Buffer
	header http.Header
}

// maxWhole is the maximum size of a [Whole] in bytes. A large picture has some 14 MB.
const maxWhole = 32 << 20

// Write implements http.ResponseWriter. It fails if the answer is too large.
func (w *Whole) Write(p []byte) (int, error) {
	if w.Len()+len(p) > maxWhole {
		return 0, errTooLarge
	}
	return w.Buffer.Write(p)
}

// Header implements http.ResponseWriter.
func (w *Whole) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter.
func (*Whole) WriteHeader(int) {}

// Flush implements http.Flusher.
func (*Whole) Flush() {}

// ErrRequested ends an idle request.
var ErrRequested = errors.New("other requests need the model server")

// withoutKey is the Caller of a request of the console without a key: its owner.
type withoutKey string

// everyModel is the scope of requests without a key.
var everyModel, _ = scope.Parse("*") // no error: it is valid

func (withoutKey) ID() string                  { return "" }
func (c withoutKey) Owner() string             { return string(c) }
func (withoutKey) Key() store.Key              { return store.Key{} }
func (withoutKey) Scope() scope.Scope          { return everyModel }
func (withoutKey) Allows(string) bool          { return true }
func (withoutKey) DefaultModel() string        { return "" }
func (withoutKey) Priority() store.Priority    { return store.PriorityNormal }
func (withoutKey) NamesPeople() (string, bool) { return "", false }
func (withoutKey) GroupLimits() (groups []limits.Subject, lowest limits.UsageLimits) {
	return nil, limits.UsageLimits{}
}

// idle reports whether the request is the gateway's own.
func (ex *Exchange) idle() bool { return ex.question != nil && ex.question.Idle }

// measures reports whether the request measures a context window.
func (ex *Exchange) measures() bool { return ex.question != nil && ex.question.Measures }

// Ask serves a request of the console as one of a client, with the default options of the handlers, and writes the
// answer to w. It returns the error that a client would get, a failure to write to w, or the cause of ctx's end.
func (s *Server) Ask(ctx context.Context, q *Question, w http.ResponseWriter) (asked Asked, err error) {
	b, err := s.Open()
	if err != nil {
		return asked, err
	}
	ex, d := NewExchange(), q.Deployment
	ex.authenticated = authenticated{Account: d.Account, Key: withoutKey(q.Owner), backend: b, question: q}
	ex.Operation, ex.Model = q.Operation, d.Name
	end, derr := func() {}, (*dialect.Error)(nil)
	switch {
	case q.Key.LiveKey != nil:
		ctx, end, derr = b.begin(ctx, ex, q.Key, q.From)
	case q.Idle:
		if !s.vacant(b, q) {
			return asked, ErrRequested
		}
		ctx, end = s.whileVacant(ctx, b, q)
	}
	defer end()
	d.Fallback = ""
	if q.Measures {
		d.Options.Overflow = compat.OverflowPass
	}
	t := &Translator{Server: s, MaxBody: DefaultMaxBody, KeepAlive: -1, ResponseStore: StoreOff}
	header := http.Header{"Content-Type": {q.Type}}
	c := &clientRequest{
		Translator: t, Backend: b, ctx: ctx, modelRequest: modelRequest{exchange: ex, header: header, answer: &answer{w: w}},
	}
	c.assign(d)
	defer func() {
		c.end()
		asked = Asked{ex.Connector, ex.attempts.began, ex.Usage}
	}()
	if derr == nil {
		ex.Reason, derr = ex.check(d, true)
	}
	if derr == nil {
		derr = c.ask(w)
	}
	if derr != nil {
		c.answer.fail(q.Operation.Dialect, ex.RequestID, derr)
	}
	err = c.outcome()
	if q.Done != nil {
		q.Done(err)
	}
	return asked, err
}

// ask passes the body of a question through Translator and Router.
func (c *clientRequest) ask(w http.ResponseWriter) *dialect.Error {
	q := c.exchange.question
	rt := &Router{Server: c.Server, ConnectWait: DefaultConnectWait}
	if q.Idle {
		rt.QueueLength = -1
	}
	r := (&http.Request{Header: c.header, ContentLength: int64(len(q.Body)), Body: io.NopCloser(bytes.NewReader(q.Body))}).
		WithContext(context.WithValue(c.ctx, exchangeKey{}, c.exchange))
	return c.perform(w, r, router{rt})
}

// router is a Router as the next handler of Translator.
type router struct{ *Router }

// ServeHTTP implements Handler.
func (rt router) ServeHTTP(_ http.ResponseWriter, r *http.Request) error { return rt.Serve(r) }

// outcome returns the error of the answer to a question.
func (c *clientRequest) outcome() error {
	c.answer.mu.Lock()
	defer c.answer.mu.Unlock()
	switch fault := c.answer.fault(); {
	case fault != nil:
		return fault
	case c.answer.err != nil:
		return c.answer.err
	case c.answer.left:
		return context.Cause(c.ctx)
	}
	return nil
}

// vacant reports whether an idle request may be sent: its model is loaded, if the server loads one model at a time, and
// no request waits for its connector.
func (s *Server) vacant(b *Backend, q *Question) bool {
	d := &q.Deployment
	route, ok := s.Route(q.Connector, tunnel.Target{Name: d.Name, Upstream: d.Upstream, Model: d.Model})
	for _, server := range b.Turns.Servers(d.Account) {
		if server.Connector == q.Connector && server.Server == route.Upstream && server.Loaded != route.Model {
			return false
		}
	}
	return ok && !slices.ContainsFunc(b.Store.Deployments(d.Account), func(o store.Deployment) bool {
		_, waiting := b.Turns.Load(d.Account, o.Name)
		return waiting > 0 && slices.Contains(o.Connectors, q.Connector)
	})
}

// whileVacant returns a context that ends when another request waits. It looks each second. end must be called.
func (s *Server) whileVacant(ctx context.Context, b *Backend, q *Question) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		defer panics.Recover(s.Logger, "watching for requests during a measurement")
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
				if !s.vacant(b, q) {
					cancel(ErrRequested)
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}
