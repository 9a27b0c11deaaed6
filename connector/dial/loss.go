package dial

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// TCP with BBR is faster if QUIC loses more than lossPercent of its packets in each
	// of lossSpans consecutive spans. A short outage, or an idle path, does not count.
	lossPercent = 3
	lossPackets = 100 // minimum of a span
	LossSpan    = 15 * time.Second
	lossSpans   = 4

	// QUIC is avoided for a time that doubles each time, until it was used for longer
	// than lossForgotten.
	firstAvoid    = 10 * time.Minute
	lastAvoid     = time.Hour
	lossForgotten = time.Hour
	// SlowFor is how long a WebSocket counts as slower: TCP without BBR treats packet
	// loss as congestion.
	SlowFor = time.Hour
)

// ErrNoBBR keeps a connector on QUIC despite packet loss.
var ErrNoBBR = errors.New("BBR is not available on this system, and a WebSocket would be slower without it")

// LossGuard keeps a connector from switching back and forth. The zero value works.
type LossGuard struct {
	Until time.Time // until then QUIC is avoided
	moves int       // away from QUIC
	slow  time.Time // until then a WebSocket counts as slower
}

// Avoided reports whether QUIC is only a last resort.
func (g *LossGuard) Avoided(now time.Time) bool { return now.Before(g.Until) }

// Avoid begins to avoid QUIC.
func (g *LossGuard) Avoid(now time.Time) time.Duration {
	if now.Sub(g.Until) > lossForgotten {
		g.moves = 0
	}
	span := min(firstAvoid<<min(g.moves, 3), lastAvoid)
	g.Until = now.Add(span)
	g.moves++
	return span
}

// Stay records that a WebSocket would be slower.
func (g *LossGuard) Stay(now time.Time) { g.slow = now.Add(SlowFor) }

// Stays reports whether a WebSocket still counts as slower.
func (g *LossGuard) Stays(now time.Time) bool { return now.Before(g.slow) }

// LossMeter measures whether the packet loss of a path stays too high.
type LossMeter struct {
	sent, lost uint64 // so far
	Bad        int    // spans in a row
}

// Span must be called at the end of each span, with the packets sent and lost so far.
func (m *LossMeter) Span(sent, lost uint64) (tooMuch bool) {
	s, l := sent-m.sent, lost-min(lost, m.lost) // a packet counted as lost may still arrive
	m.sent, m.lost = sent, lost
	if s < lossPackets || l*100 <= s*lossPercent {
		m.Bad = 0
		return false
	}
	m.Bad++
	return m.Bad >= lossSpans
}

// DialFast opens a WebSocket with BBR, or fails with [ErrNoBBR].
func (d *WebSocket) DialFast(ctx context.Context, activity *Activity) (*Conn, error) {
	conn, err := d.Dial(ctx, activity)
	if err != nil {
		return nil, err
	}
	if !conn.bbr {
		_ = conn.Close(link.CloseNone, "")
		return nil, ErrNoBBR
	}
	return conn, nil
}
