package agent

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// Where QUIC loses more than this share of its packets, TCP with BBR is
	// faster: in each of lossSpans spans in a row, which make a minute. A line that
	// was dead for a moment, or has hardly anything to carry, is no reason.
	lossPercent = 3
	lossPackets = 100 // that a span has at least
	lossSpan    = 15 * time.Second
	lossSpans   = 4

	// QUIC is not tried again for a time that doubles whenever it was no better,
	// until it was better for longer than lossForgotten.
	firstAvoid    = 10 * time.Minute
	lastAvoid     = time.Hour
	lossForgotten = time.Hour
	// slowFor is how long it counts that a WebSocket would be even slower: TCP
	// without BBR takes each lost packet for a full path.
	slowFor = time.Hour
)

// errNoBBR keeps a connector on QUIC that loses packets.
var errNoBBR = errors.New("this system gives the WebSocket no BBR, without which it would be slower")

// lossGuard keeps a connector from changing to and fro. The zero value works.
type lossGuard struct {
	until time.Time // QUIC is avoided
	moves int       // away from QUIC
	slow  time.Time // until then a WebSocket is known to be slower
}

// avoided tells whether QUIC is not to be tried unless all else fails.
func (g *lossGuard) avoided(now time.Time) bool { return now.Before(g.until) }

// avoid begins to avoid QUIC.
func (g *lossGuard) avoid(now time.Time) time.Duration {
	if now.Sub(g.until) > lossForgotten {
		g.moves = 0
	}
	span := min(firstAvoid<<min(g.moves, 3), lastAvoid)
	g.until = now.Add(span)
	g.moves++
	return span
}

// stay notes that a WebSocket would be slower.
func (g *lossGuard) stay(now time.Time) { g.slow = now.Add(slowFor) }

// stays tells whether that counts still.
func (g *lossGuard) stays(now time.Time) bool { return now.Before(g.slow) }

// lossMeter finds out whether a path has lost too much for long enough.
type lossMeter struct {
	sent, lost uint64 // so far
	bad        int    // spans in a row
}

// span is called at the end of each with what was sent and lost so far.
func (m *lossMeter) span(sent, lost uint64) (tooMuch bool) {
	s, l := sent-m.sent, lost-min(lost, m.lost) // a packet may turn up that counted as lost
	m.sent, m.lost = sent, lost
	if s < lossPackets || l*100 <= s*lossPercent {
		m.bad = 0
		return false
	}
	m.bad++
	return m.bad >= lossSpans
}

// watch looks at what QUIC loses, and changes to a WebSocket where that is too
// much.
func (a *Agent) watch(search, ctx context.Context, s *session, found chan<- handover) {
	quic := s.conn.(*quicTunnel)
	var meter lossMeter
	meter.span(quic.packets())
	for {
		select {
		case <-search.Done():
			return
		case <-time.After(a.lossSpan):
		}
		if !meter.span(quic.packets()) || a.loss.stays(time.Now()) {
			continue
		}
		conn, err := a.dialFast(search)
		switch {
		case search.Err() != nil:
			if err == nil {
				_ = conn.Close(link.CloseNone, "")
			}
			return
		case errors.Is(err, errNoBBR):
			a.loss.stay(time.Now())
			a.logger.Info("QUIC loses too many packets; staying on it all the same", "session", s.welcome.Session, "reason", err,
				"again_in", slowFor.String(), "fix", "on Linux: `modprobe tcp_bbr`")
			continue
		case err != nil:
			meter.bad = 0 // another minute
			a.logger.Debug("QUIC loses many packets, but there is no WebSocket", "reason", reason(err))
			continue
		}
		span := a.loss.avoid(time.Now())
		a.logger.Info("QUIC loses too many packets; leaving it for a WebSocket", "session", s.welcome.Session, "for", span.String())
		found <- a.change(ctx, s, conn)
		return
	}
}

// dialFast opens a WebSocket that is faster than QUIC where packets are lost.
// Whether it is, only its own socket can tell.
func (a *Agent) dialFast(ctx context.Context) (link.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, longDialTimeout)
	defer cancel()
	conn, err := a.web.dial(ctx)
	if err != nil {
		return nil, err
	}
	if web, ok := conn.(*webTunnel); !ok || !web.bbr {
		_ = conn.Close(link.CloseNone, "")
		return nil, errNoBBR
	}
	return conn, nil
}
