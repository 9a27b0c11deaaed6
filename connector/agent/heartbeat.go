package agent

import (
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// lostAfter is how long a gateway may take to answer a ping, as the gateway waits for a message. It
	// applies to a program that hangs: on a dead path, QUIC's idle timeout comes first.
	lostAfter = 22 * time.Second
	// minHeartbeat guards against a gateway that asks for too many pings.
	minHeartbeat = 20 * time.Millisecond
	maxHeartbeat = time.Minute
	// defaultHeartbeat applies if the gateway sends none.
	defaultHeartbeat = 3 * time.Second
)

// ping sends pings at the heartbeat interval. A restarted gateway answers them with a stateless reset, and
// so does one that has given the tunnel up while this machine was suspended.
func (s *session) ping() {
	beat := time.NewTimer(0)
	defer beat.Stop()
	lost := time.NewTimer(s.leg.lostAfter)
	defer lost.Stop()
	for {
		select {
		case <-s.conn.Context().Done():
			return
		case <-s.pongs:
			lost.Reset(s.leg.lostAfter)
		case <-lost.C:
			s.close(link.CloseLost, errNoPong)
			return
		case <-beat.C:
			if err := s.send(link.Ping{}); err != nil {
				s.fail(err)
				return
			}
			beat.Reset(time.Duration(s.heartbeat.Load()))
		}
	}
}
