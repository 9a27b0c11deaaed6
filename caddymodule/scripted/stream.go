package scripted

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// think takes the time of one token. It returns an error as soon as the client
// is gone, so that nothing is generated in vain.
func (m *Model) think(r *http.Request) error {
	if m.delay <= 0 {
		return r.Context().Err()
	}
	timer := time.NewTimer(m.delay)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		return r.Context().Err()
	case <-timer.C:
		return nil
	}
}

// events writes a stream of server-sent events, each flushed at once.
type events struct {
	w     http.ResponseWriter
	flush func() error
}

func newEvents(w http.ResponseWriter) *events {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	return &events{w: w, flush: http.NewResponseController(w).Flush}
}

// send writes one event. Its error means that the client is gone.
func (e *events) send(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	return e.write(data)
}

// done writes the event that ends a stream.
func (e *events) done() error { return e.write([]byte("[DONE]")) }

func (e *events) write(data []byte) error {
	event := make([]byte, 0, len(data)+len("data: \n\n"))
	event = append(event, "data: "...)
	event = append(event, data...)
	event = append(event, "\n\n"...)
	if _, err := e.w.Write(event); err != nil {
		return err
	}
	return e.flush()
}
