package agent

import (
	"time"

	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
)

const (
	// pongTimeout is how long a gateway may take to answer a ping.
	pongTimeout = 3 * time.Second
	// silenceLimit is how long a tunnel may be silent that was not replaced. QUIC
	// itself has the same limit.
	silenceLimit = 30 * time.Second
	// pingAgain is when the next ping follows one without an answer.
	pingAgain = 500 * time.Millisecond
	// pingEvery is how many of the beats in silence have a ping, which waits in
	// the stream; the others just send the last packet once more.
	pingEvery = 2
	// standstill is how late a timer of this process is if it stood still: frozen, or
	// on a machine that was.
	standstill = 500 * time.Millisecond
	// minHeartbeat guards against a gateway that asks for pings without pause.
	minHeartbeat = 20 * time.Millisecond
	maxHeartbeat = time.Minute
	// defaultHeartbeat is for a gateway that names none.
	defaultHeartbeat = 3 * time.Second
)

// ping asks the gateway for pongs: a restarted one answers with a stateless reset. While
// an answer is missing, packets follow faster. A tunnel that has had a pong does not end
// by silence alone, as the path may come back: see rescue.
func (s *session) ping() {
	beat := time.NewTimer(0)
	defer beat.Stop()
	lost := time.NewTimer(s.agent.pongTimeout)
	lost.Stop()
	defer lost.Stop()
	var due time.Time // when lost is to fire
	wait := func(d time.Duration) { due = time.Now().Add(d); lost.Reset(d) }
	answered, missing := false, 0 // missing: beats without an answer
	for {
		select {
		case <-s.conn.Context().Done():
			return
		case <-lost.C:
			if dial.YieldToReaders(); len(s.pongs) > 0 { // it was this machine that was late
				continue
			}
			if time.Since(due) > standstill { // so was the answer's reader, if there is one
				wait(s.agent.pongTimeout)
				continue
			}
			rest := s.agent.silenceLimit - s.agent.pongTimeout
			if !answered || rest <= 0 || s.silent.Load() || s.departed.Load() && s.running.Load() == 0 {
				s.close(link.CloseLost, errNoPong)
				return
			}
			s.setSilent(true)
			wait(rest)
		case <-s.pongs:
			answered, missing = true, 0
			lost.Stop()
			s.conn.ArmProbe(false)
			if s.silent.Load() {
				s.setSilent(false)
			}
			beat.Reset(time.Duration(s.heartbeat.Load()))
		case <-beat.C:
			if missing++; missing == 1 {
				wait(s.agent.pongTimeout)
				s.conn.ArmProbe(true)
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

// setSilent notes that a tunnel fell silent, or answers again.
func (s *session) setSilent(silent bool) {
	s.silent.Store(silent)
	trySend(s.silenceChanged, struct{}{})
}

func (a *Agent) onSilenceChange(s *session) {
	if s.silent.Load() {
		a.Logger.Warn("the gateway is silent; dialling it in parallel", "session", s.welcome.Session, "fix", advice[endSilent])
		a.monitor.enter(silent, &Problem{Reason: errNoPong.Error(), Fix: advice[endSilent], RetryAt: time.Now()})
		return
	}
	a.Logger.Info("the gateway answers again; the tunnel stays", "session", s.welcome.Session)
	a.retry.reset()
	a.webDelay = webDelayOf(s)
	a.monitor.online(s, false)
}
