package agent

import (
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	// lostAfter is how long a gateway may take to read messages and to answer a ping, as the gateway waits for
	// a message. It applies to a program that hangs: on a dead path, QUIC's idle timeout comes first.
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
	for {
		if err := s.control.Send(link.Ping{}); err != nil {
			s.fail(err)
			return
		}
		if wait.For(s.conn.Context(), time.Duration(s.heartbeat.Load())) != nil {
			return
		}
	}
}

// setHeartbeat sets the heartbeat to the gateway's interval, within limits.
func (s *session) setHeartbeat(milliseconds int) {
	if milliseconds > 0 {
		s.heartbeat.Store(int64(min(max(time.Duration(milliseconds)*time.Millisecond, minHeartbeat), maxHeartbeat)))
	}
}
