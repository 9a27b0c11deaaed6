package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
)

// chunkBytes is the size of reads of bodies. It also bounds a request that is sent before its answer is read.
const chunkBytes = 32 << 10

// chunks contains *[]byte of chunkBytes.
var chunks = sync.Pool{New: func() any { b := make([]byte, chunkBytes); return &b }}

const (
	dialTimeout = 10 * time.Second
	// keepAlive is the interval of TCP keep-alives. A model may take an hour until its
	// first header, and only keep-alives detect a dead server.
	keepAlive = 15 * time.Second
)

// ErrNotConnected means that connecting failed, or that the connection was closed
// before the first byte of the request left.
var ErrNotConnected = errors.New("connecting")

// Server is one upstream: a model server.
type Server struct {
	Name    string
	prefix  string   // of the path, before /v1
	key     *keyFile // nil: no key
	host    string   // Host of requests
	Address string   // host:port to dial
	tls     *tls.Config
	allow   []config.Pattern // in addition to the gateway's requests
	health  health
	pool    pool
}

// newServer returns the upstream at base, a URL that ends in /v1.
func newServer(name string, base *url.URL, key *keyFile) *Server {
	u := &Server{
		Name:   name,
		prefix: strings.TrimSuffix(base.Path, "/v1"),
		key:    key,
		host:   wireHost(base.Host),
		health: health{doubts: make(chan time.Duration, 1)},
	}
	port := cmp.Or(base.Port(), "80")
	encoded := (&url.URL{Host: u.host}).Hostname()
	if base.Scheme == "https" {
		port = cmp.Or(base.Port(), "443")
		u.tls = &tls.Config{
			ServerName: encoded, NextProtos: []string{"http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(1),
		}
	}
	name = base.Hostname()
	if !strings.Contains(name, "%") { // not an IPv6 address with its zone
		name = encoded
	}
	u.Address = net.JoinHostPort(name, port)
	return u
}

// zone is the zone of an IPv6 address in brackets.
var zone = regexp.MustCompile(`%[^]]*\]`)

// wireHost returns a host as net/http sends it: non-ASCII letters are encoded, and the
// zone of an IPv6 address is removed. Invalid hosts are returned unchanged.
func wireHost(host string) string {
	if encoded, err := httpguts.PunycodeHostPort(host); err == nil {
		host = encoded
	}
	return zone.ReplaceAllString(host, "]")
}

// roundTrip sends a request to the upstream, and waits for the head of the answer, which the caller must close. The
// error wraps ErrNotConnected if the upstream cannot have seen the request. Once a byte has left, it is never sent
// again: the model may be at work.
func (u *Server) roundTrip(ctx context.Context, up *upload) (*modelAnswer, error) {
	if kept := u.pool.take(); kept != nil {
		if answer, err := begin(ctx, kept, up).receive(); !errors.Is(err, ErrNotConnected) {
			return answer, err
		}
	}
	conn, err := u.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotConnected, err)
	}
	return begin(ctx, conn, up).receive()
}

// dial opens a connection.
func (u *Server) dial(ctx context.Context) (*connection, error) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	raw, err := dialer.DialContext(ctx, "tcp", u.Address)
	if err != nil {
		return nil, err
	}
	if u.tls == nil {
		return &connection{Conn: raw, raw: raw, pool: &u.pool}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	secure := tls.Client(raw, u.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
			err = fmt.Errorf("the server does not use HTTPS, write http:// in its address: %w", err)
		}
		return nil, err
	}
	return &connection{Conn: secure, raw: raw, pool: &u.pool}, nil
}

// KeyFile returns the path of the upstream's key file, or "".
func (u *Server) KeyFile() string {
	if u.key == nil {
		return ""
	}
	return u.key.path
}

// equal reports whether two upstreams have the same server, key file and allowed requests.
func (u *Server) equal(v *Server) bool {
	return u.Address == v.Address && u.host == v.host && u.prefix == v.prefix && (u.tls == nil) == (v.tls == nil) &&
		u.KeyFile() == v.KeyFile() && slices.Equal(u.allow, v.allow)
}

// served are the requests of the gateway: their methods and paths.
var served = map[string]bool{
	"GET /v1/models":                true,
	"POST /v1/chat/completions":     true,
	"POST /v1/completions":          true,
	"POST /v1/embeddings":           true,
	"POST /v1/rerank":               true,
	"POST /v1/score":                true,
	"POST /v1/audio/transcriptions": true,
	"POST /v1/audio/translations":   true,
	"POST /v1/audio/speech":         true,
	"GET /v1/audio/voices":          true,
	"POST /v1/images/generations":   true,
	"POST /v1/images/edits":         true,
}

// allows reports whether a request may reach the upstream: the gateway's own requests, and
// those allowed by the configuration, with plain paths under /v1.
func (u *Server) allows(r *http.Request) bool {
	target := r.URL
	if target.Scheme != "" || target.Host != "" || target.Opaque != "" || target.RawPath != "" ||
		strings.ContainsFunc(target.RawQuery, unicode.IsControl) {
		return false
	}
	if served[r.Method+" "+target.Path] {
		return true
	}
	return slices.ContainsFunc(u.allow, func(p config.Pattern) bool { return p.Matches(r.Method, target.Path) })
}

// Set maps names to the upstreams of a configuration. It must not be modified while in use.
type Set map[string]*Server

// Open returns the upstreams of a valid configuration, and reads their keys. It reuses
// unchanged upstreams in old, with their health.
func Open(c *config.Config, old Set, logger *slog.Logger) (Set, error) {
	allow, err := c.Patterns()
	if err != nil {
		return nil, err
	}
	endpoints, err := c.Endpoints()
	if err != nil {
		return nil, err
	}
	set := make(Set, len(endpoints))
	for _, e := range endpoints {
		var key *keyFile
		if e.KeyFile != "" {
			if key, err = openKeyFile(e.KeyFile, time.Now, logger); err != nil {
				return nil, fmt.Errorf("%s: %w", e.KeyFileField, err)
			}
		}
		s := newServer(e.Name, e.Base, key)
		s.allow = allow
		if same := old[e.Name]; same != nil && same.equal(s) {
			s = same
		}
		set[e.Name] = s
	}
	return set, nil
}

// Names returns the names of the upstreams, sorted.
func (s Set) Names() []string { return slices.Sorted(maps.Keys(s)) }

// Report returns the states of the upstreams, for the gateway.
func (s Set) Report() link.Report {
	var r link.Report
	for _, name := range s.Names() {
		if report := s[name].health.report.Load(); report != nil {
			r.Upstreams = append(r.Upstreams, *report)
		}
	}
	r.Fit()
	return r
}
