package link

import (
	"context"
	"encoding/json"
	"fmt"
)

// Ask writes a message for a peer itself on a new stream, after an empty relay header. The peer reads
// both with [ReadRelayHeader] and [ReadAsked]. The message determines what follows in both directions.
func Ask(s Stream, m Message) error {
	frame, err := encode(m)
	if err == nil {
		_, err = s.Write(append([]byte{0}, frame...))
	}
	if err != nil {
		return fmt.Errorf("asking a gateway: %w", streamError(context.Background(), err))
	}
	return nil
}

// ReadAsked reads the message of [Ask], after [ReadRelayHeader]. It reads no more than the message.
func ReadAsked(s Stream) (Message, error) { return NewControl(s).Receive() }

// Activity asks a gateway for the requests that an account has sent there, or without a query for their
// unpublished usage. The answer is JSON.
type Activity struct {
	Account string          `json:"account"`
	Query   json.RawMessage `json:"query,omitempty"`
}

// Kept asks for a response that a gateway keeps for a key, or for a whole account. The answer is
// the response, and empty if the gateway does not keep it.
type Kept struct {
	Account string `json:"account"`
	Key     string `json:"key,omitempty"` // id
	ID      string `json:"id"`            // of the response, or of one of its items
	// Delete removes the response, after the answer.
	Delete bool `json:"delete,omitempty"`
}

func (Activity) kind() string { return "activity" }
func (Kept) kind() string     { return "kept" }
