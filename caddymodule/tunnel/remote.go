package tunnel

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// peerLost is how long a peer may be silent before its connection counts as lost. Peers
	// send a ping every half second.
	peerLost = 3 * time.Second
	// peerSuspect is how long a peer may be silent before its tunnels are suspect.
	peerSuspect = 1200 * time.Millisecond
)

// ErrNoPeer: the peer has no connection to this gateway.
var ErrNoPeer = errors.New("it has no connection to this one")

// Open opens a stream to a peer, not to a connector there.
func (h *Hub) Open(peer string) (*quic.Stream, error) {
	h.mu.RLock()
	p := h.peers[peer]
	h.mu.RUnlock()
	if p == nil {
		return nil, ErrNoPeer
	}
	return p.conn.OpenStream()
}

// PeerConn is the connection from a peer. Requests for the tunnels there go over it, and make one hop.
type PeerConn struct {
	*connection
	name, region string       // of the peer
	lastMessage  atomic.Int64 // Unix time of the peer's last message, in nanoseconds
}

func (p *PeerConn) beat() { p.lastMessage.Store(time.Now().UnixNano()) }

// silent reports whether the peer has missed pings.
func (p *PeerConn) silent() bool {
	return time.Now().UnixNano()-p.lastMessage.Load() > int64(peerSuspect)
}

// Context ends with the connection.
func (p *PeerConn) Context() context.Context { return p.conn.Context() }

// Add adds a tunnel at the peer, as described by the message of [Session.Messages] there.
func (p *PeerConn) Add(m link.Tunnel) *Session {
	o := m.Opened
	s := &Session{
		connection: p.connection, peer: p, opened: o, id: m.Session, hello: o.Hello, since: o.Since,
		idle: make(chan struct{}), waiting: make(map[*openStream]bool),
		connector: Connector{ID: o.Hello.Connector, Name: o.Name, Account: o.Account, Pairing: o.Pairing},
	}
	s.serving, s.stopServing = context.WithCancel(p.conn.Context())
	s.reported.Store(new(states))
	p.Update(s, m)
	h, id := p.hub, s.connector.ID
	defer h.replaceByPeer(id)
	defer h.events.deliver()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remote[id] = append(h.remote[id], s)
	h.events.add(eventOf(s, true))
	return s
}

// Update applies a change of a tunnel at the peer.
func (*PeerConn) Update(s *Session, m link.Tunnel) {
	if m.Report != nil {
		s.report(*m.Report)
	}
	s.peerActive.Store(int64(m.Active))
	s.peerRTT.Store(m.RTTMicros)
}

// Remove removes a tunnel that takes no further requests. Its running requests continue.
func (*PeerConn) Remove(s *Session) { s.stop() }

// succeeds reports whether s belongs to a later process of the connector than another session.
func (s *Session) succeeds(other *Session) bool {
	return s.hello.Instance != other.hello.Instance && s.hello.StartedMillis > other.hello.StartedMillis
}

// replaceByPeer ends this gateway's session of a connector whose later process has a tunnel at a peer.
func (h *Hub) replaceByPeer(connectorID string) {
	h.mu.RLock()
	local := h.live[connectorID]
	replaced := local != nil && slices.ContainsFunc(h.remote[connectorID],
		func(s *Session) bool { return s.succeeds(local) })
	h.mu.RUnlock()
	if replaced {
		local.replace()
	}
}

// maxLost bounds the times at which connectors went offline. At the bound, all are forgotten.
const maxLost = 1 << 16

// addOffline queues the event that a session's connector is offline, unless it has another tunnel.
// The caller holds the lock.
func (h *Hub) addOffline(s *Session) {
	if h.online(s.connector.ID) {
		return
	}
	if len(h.lost) >= maxLost {
		clear(h.lost)
	}
	h.lost[s.connector.ID] = time.Now()
	h.events.add(eventOf(s, false))
}

// online reports whether a connector has a tunnel. The caller holds the lock.
func (h *Hub) online(connectorID string) bool {
	local := h.live[connectorID]
	return len(h.remote[connectorID]) > 0 || local != nil && !local.silent.Load()
}

// LastOnline returns when one of the connectors was last online, or when the hub started if that is not known.
func (h *Hub) LastOnline(connectorIDs []string) time.Time {
	h.mu.RLock()
	defer h.mu.RUnlock()
	last := h.started
	for _, id := range connectorIDs {
		if h.online(id) { // its tunnel is ending, or was tried
			return time.Now()
		}
		if lost := h.lost[id]; lost.After(last) {
			last = lost
		}
	}
	return last
}

// sessions returns the sessions of the tunnels at the peer.
func (p *PeerConn) sessions() (list []*Session) {
	p.hub.mu.RLock()
	defer p.hub.mu.RUnlock()
	for _, there := range p.hub.remote {
		for _, s := range there {
			if s.peer == p {
				list = append(list, s)
			}
		}
	}
	return list
}

// Relay serves a request of a peer for a connector on its stream. It considers only tunnels of this
// gateway, so a request makes one hop at most. serving fails while this gateway may not know that the
// connector was replaced.
func (h *Hub) Relay(stream *quic.Stream, header link.RelayHeader, serving func() error) {
	opened, err := h.openRelay(stream, header, serving)
	if err != nil {
		code := link.CodeDraining
		if errors.Is(err, link.ErrNoCredit) {
			code = link.CodeNoCredit
		}
		link.Refuse(stream, code)
		return
	}
	defer opened.done()
	h.counters.requests.Add(1)
	link.Relay(stream, &relayedStream{openStream: opened})
}

// relayedStream is the stream of a relayed request, whose answer begins with the first Read.
type relayedStream struct {
	*openStream
	begun bool
}

// Read implements io.Reader. A request that has failed no longer gets an answer.
func (r *relayedStream) Read(p []byte) (int, error) {
	n, err := r.Stream.Read(p)
	if !r.begun && r.session.setWaiting(r.openStream, false) {
		return 0, &quic.StreamError{ErrorCode: quic.StreamErrorCode(link.CodeSilent)}
	}
	r.begun = true
	return n, err
}

// openRelay opens the stream to the connector for a request of a peer.
func (h *Hub) openRelay(stream *quic.Stream, header link.RelayHeader, serving func() error) (*openStream, error) {
	s, ok := h.Session(header.Connector)
	if !ok {
		return nil, errEnded
	}
	if err := serving(); err != nil { // the gateway may have lost the store
		return nil, err
	}
	return s.open(stream.Context())
}
