package tunnel

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/link/bodies"
)

// Info describes a session.
type Info struct {
	Connector string // id
	Account   string
	Session   string  // id
	NotAt     []NotAt // gateways of the cluster to which the connector has no tunnel
	Instance  string
	Name      string // as registered
	Host      string // host name reported by the connector
	Version   string
	OS        string
	Transport string // "quic" or "websocket"
	Remote    string // address
	Since     time.Time
	RTT       time.Duration // smoothed
	Upstreams []string
	Routes    []link.Route
	States    []UpstreamState // of Upstreams, in their order
	Active    int             // running requests
	Limit     int             // maximum of running requests
}

// encodeFrom is the minimum round-trip time from which bodies are encoded. On shorter lines,
// zstd is slower than sending the text, and takes three times the CPU.
const encodeFrom = 5 * time.Millisecond

// Session is one live tunnel. It is an [http.RoundTripper].
type Session struct {
	*connection
	id        string
	connector Connector
	hello     link.Hello // without its secret
	reported  atomic.Pointer[states]
	notAt     atomic.Pointer[[]NotAt]
	since     time.Time

	active       atomic.Int64
	bodies       *bodies.Tunnel // nil: they are not kept
	roundTrips   roundTrips
	overdue      atomic.Pointer[time.Time] // when two pings are
	unansweredMu sync.Mutex
	unanswered   map[*openStream]bool // requests whose answers have not begun
	draining     atomic.Bool
	silent       atomic.Bool     // gets no requests until its connector sends again
	serving      context.Context // canceled when the session takes no further requests
	stopServing  context.CancelFunc
	idle         chan struct{} // closed when draining without requests
	idleOnce     sync.Once
	pong         chan struct{} // capacity 1: the answer to a ping of the gateway

	members membership

	misreported atomic.Bool // an invalid report was logged
	rechecking  atomic.Bool // a link.Recheck is being sent

	reviewDue atomic.Bool // a timer will call review
}

var _ http.RoundTripper = (*Session)(nil)

func newSession(c *connection, connector Connector, hello link.Hello) *Session {
	hello.Secret = ""
	s := &Session{
		connection: c, id: rand.Text()[:12], connector: connector, hello: hello,
		since: time.Now(), idle: make(chan struct{}), pong: make(chan struct{}, 1),
		unanswered: make(map[*openStream]bool),
	}
	if kept, cache := hello.KeptPrompts, c.hub.options.Load().Bodies; kept != nil && cache != nil {
		s.bodies = cache.NewTunnel(*kept)
	}
	s.serving, s.stopServing = context.WithCancel(c.conn.Context())
	s.reported.Store(new(states))
	s.notAt.Store(new([]NotAt))
	s.recordPing(c.hub.heartbeat())
	return s
}

// Info describes the session now.
func (s *Session) Info() Info {
	return Info{
		Connector: s.connector.ID,
		Account:   s.connector.Account,
		Session:   s.id,
		Instance:  s.hello.Instance,
		Name:      s.connector.Name,
		Host:      s.hello.Name,
		Version:   s.hello.Version,
		OS:        s.hello.OS,
		Transport: s.conn.Transport(),
		Remote:    s.conn.RemoteAddr().String(),
		Since:     s.since,
		RTT:       s.conn.RTT(),
		Upstreams: slices.Clone(s.hello.Upstreams),
		Routes:    slices.Clone(s.hello.Routes),
		States:    s.States(),
		NotAt:     *s.notAt.Load(),
		Active:    int(s.active.Load()),
		Limit:     cmp.Or(s.hello.MaxRequests, link.DefaultMaxRequests),
	}
}

// log returns the current logger with the fields of this session.
func (s *Session) log() *slog.Logger {
	return s.hub.options.Load().Logger.With("connector_id", s.connector.ID, "session_id", s.id, "remote",
		s.conn.RemoteAddr().String())
}

// usable reports whether the session takes requests.
func (s *Session) usable() bool {
	return !s.draining.Load() && !s.silent.Load() && s.serving.Err() == nil
}

// RoundTrip is [Session.Send] for a request of the gateway itself.
func (s *Session) RoundTrip(r *http.Request) (*http.Response, error) { return s.Send(r, "") }

// Send sends a request of a key to the connector and returns the answer, whose body must be
// closed. The request's Host is the name of an upstream, its body is in memory and
// its ContentLength is known. After an error that wraps link.ErrNotSent, nothing was
// sent, and the request may be sent on another session. The same is true of
// link.ErrNoCredit.
//
// The parts that the body shares with an earlier one of the same key are not sent again.
func (s *Session) Send(r *http.Request, key string) (*http.Response, error) {
	stream, err := s.open(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	s.hub.counters.requests.Add(1)
	answer, err := s.sendEncoded(stream, r, key)
	if err == nil {
		err = decompress(answer)
	}
	if err != nil {
		s.hub.counters.failed.Add(1)
		return nil, err
	}
	return answer, nil
}

// sendEncoded sends a request. It encodes a JSON body if the connector supports that and the line is long. If the
// connector does not keep the body to which the request refers, it sends the body whole.
func (s *Session) sendEncoded(stream *openStream, r *http.Request, key string) (*http.Response, error) {
	if s.hello.KeptPrompts == nil || r.ContentLength < bodies.MinBody || s.shortestRTT() < s.hub.encodeFrom ||
		!link.HasMediaType(r.Header, "application/json") {
		return s.roundTrip(stream, r)
	}
	sent := bodies.Encode(r, s.bodies, key)
	answer, err := s.roundTrip(stream, sent.Request)
	if sent.Refers() && errors.Is(err, link.ErrUnknownBody) {
		if stream, err = s.open(r.Context()); err == nil {
			answer, err = s.roundTrip(stream, sent.Whole().Request)
		}
	}
	sent.End(err == nil && r.Context().Err() == nil) // else the key may have ended
	return answer, err
}

// roundTrip sends a request as it is.
func (s *Session) roundTrip(stream *openStream, r *http.Request) (*http.Response, error) {
	answer, err := link.RoundTrip(r.Context(), stream, r, stream.done)
	if wasReset := s.setUnanswered(stream, false); wasReset && err == nil { // after the head has arrived
		_ = answer.Body.Close()
		return nil, link.ErrSilent
	}
	return answer, err
}

// shortestRTT returns the shortest round-trip time to the connector of the last minutes.
func (s *Session) shortestRTT() time.Duration {
	return s.roundTrips.shortest(s.conn.ConnectionStats().LatestRTT)
}
