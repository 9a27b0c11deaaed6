package agent

import (
	"time"

	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	// pongTimeout bounds the gateway's answer to a ping.
	pongTimeout = 3 * time.Second
	// silenceLimit is how long a tunnel may be silent before it is closed. QUIC has the
	// same limit.
	silenceLimit = 30 * time.Second
	// pingAgain is the interval of beats while a pong is missing.
	pingAgain = 500 * time.Millisecond
	// On a silent tunnel, every pingEvery-th beat sends a ping, which is queued in the
	// stream. The other beats only send the last packet again.
	pingEvery = 2
	// standstill is how late a timer must fire to show that the process or the machine was
	// frozen.
	standstill = 500 * time.Millisecond
	// minHeartbeat guards against a gateway that asks for too many pings.
	minHeartbeat = 20 * time.Millisecond
	maxHeartbeat = time.Minute
	// defaultHeartbeat applies if the gateway sends none.
	defaultHeartbeat = 3 * time.Second
)

// ping sends pings at the heartbeat interval, and more often while a pong is missing.
// A restarted gateway answers with a stateless reset. A tunnel that has had a pong is first
// only marked as silent, as its path may recover: see rescue.
func (s *session) ping() {
	beat := time.NewTimer(0)
	defer beat.Stop()
	lost := time.NewTimer(s.leg.pongTimeout)
	lost.Stop()
	defer lost.Stop()
	var due time.Time // when lost should fire
	expect := func(d time.Duration) { due = time.Now().Add(d); lost.Reset(d) }
	missing := 0 // beats since the last pong
	for {
		select {
		case <-s.conn.Context().Done():
			return
		case <-lost.C:
			if dial.YieldToReaders(); len(s.pongs) > 0 { // this machine was slow
				continue
			}
			if time.Since(due) > standstill { // the reader of the pong was delayed too
				expect(s.leg.pongTimeout)
				continue
			}
			grace := s.leg.silenceLimit - s.leg.pongTimeout
			if !s.answered.Load() || grace <= 0 || s.silent.Load() || s.departed.Load() && s.running.Load() == 0 {
				s.close(link.CloseLost, errNoPong)
				return
			}
			s.setSilent(true)
			expect(grace)
		case <-s.pongs:
			s.answered.Store(true)
			missing = 0
			lost.Stop()
			if s.silent.Load() {
				s.setSilent(false)
			}
			beat.Reset(time.Duration(s.heartbeat.Load()))
		case <-beat.C:
			if missing++; missing == 1 {
				expect(s.leg.pongTimeout)
			} else {
				s.conn.ProbePath()
			}
			if !s.silent.Load() || missing%pingEvery == 0 {
				if err := s.send(link.Ping{}); err != nil {
					s.fail(err)
					return
				}
			}
			beat.Reset(pingAgain)
		}
	}
}

// setSilent records that a tunnel fell silent, or answers again.
func (s *session) setSilent(silent bool) {
	s.silent.Store(silent)
	wait.Wake(s.silenceChanged, struct{}{})
}

func (l *leg) onSilenceChange(s *session) {
	if s.silent.Load() {
		l.Logger.Warn("the gateway does not answer; dialing a second connection", "session", s.welcome.Session,
			"fix", advice[endSilent])
		l.enter(silent, &Problem{Reason: errNoPong.Error(), Fix: advice[endSilent], RetryAt: time.Now()})
		l.wakeOthers()
		return
	}
	l.Logger.Info("the gateway answers again; the tunnel stays", "session", s.welcome.Session)
	l.retry.reset()
	l.webDelay = webDelayOf(s)
	l.online(s, false)
}
