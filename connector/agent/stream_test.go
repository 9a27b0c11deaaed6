package agent

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// slowStream is slow to write, and records the calls.
type slowStream struct {
	io.Reader
	mu    sync.Mutex
	calls []string
}

func (s *slowStream) note(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

func (s *slowStream) SetWriteDeadline(time.Time) error {
	s.note("limit")
	return nil
}

func (s *slowStream) Write(p []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	s.note("written")
	return len(p), nil
}

// TestWaitingIsNotLimited: the limit of a message begins when the previous one is written.
func TestWaitingIsNotLimited(t *testing.T) {
	stream := &slowStream{}
	s := &session{control: link.NewControl(boundedStream{stream, forever})}
	var senders sync.WaitGroup
	for range 5 {
		senders.Go(func() {
			if err := s.send(link.Ping{}); err != nil {
				t.Error(err)
			}
		})
	}
	senders.Wait()
	if got, want := strings.Join(stream.calls, " "), strings.TrimSpace(strings.Repeat("limit written ", 5)); got != want {
		t.Errorf("got %s", got)
	}
}
