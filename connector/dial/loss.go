package dial

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
	LossSpan    = 15 * time.Second
	lossSpans   = 4

	// QUIC is not tried again for a time that doubles whenever it was no better,
	// until it was better for longer than lossForgotten.
	firstAvoid    = 10 * time.Minute
	lastAvoid     = time.Hour
	lossForgotten = time.Hour
	// SlowFor is how long it counts that a WebSocket would be even slower: TCP
	// without BBR takes each lost packet for a full path.
	SlowFor = time.Hour
)

// ErrNoBBR keeps a connector on QUIC that loses packets.
var ErrNoBBR = errors.New("this system gives the WebSocket no BBR, without which it would be slower")

// LossGuard keeps a connector from changing to and fro. The zero value works.
type LossGuard struct {
	Until time.Time // QUIC is avoided
	moves int       // away from QUIC
	slow  time.Time // until then a WebSocket is known to be slower
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

// Stay notes that a WebSocket would be slower.
func (g *LossGuard) Stay(now time.Time) { g.slow = now.Add(SlowFor) }

// Stays reports whether that is still assumed.
func (g *LossGuard) Stays(now time.Time) bool { return now.Before(g.slow) }

// LossMeter finds out whether a path has lost too much for long enough.
type LossMeter struct {
	sent, lost uint64 // so far
	Bad        int    // spans in a row
}

// Span is called at the end of each span with the packets sent and lost so far.
func (m *LossMeter) Span(sent, lost uint64) (tooMuch bool) {
	s, l := sent-m.sent, lost-min(lost, m.lost) // a packet may turn up that counted as lost
	m.sent, m.lost = sent, lost
	if s < lossPackets || l*100 <= s*lossPercent {
		m.Bad = 0
		return false
	}
	m.Bad++
	return m.Bad >= lossSpans
}

// DialFast opens a WebSocket that is faster than QUIC where packets are lost.
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
