package link

import (
	"context"
	"encoding/json"
)

// Enter is what a gateway sends to a peer, the owner of a deployment's queue or of the limits
// of an account, for one request. It is sent with [Ask], alone on its stream.
type Enter struct {
	Account    string `json:"account"`
	Deployment string `json:"deployment,omitempty"` // "": the limits of the key and the account
	Owner      string `json:"owner"`                // of the key: owners take turns
	Key        string `json:"key"`                  // id: and the keys of each
	// Length and WaitMillis are how many requests may wait, and how long this one may.
	Length     int   `json:"length"`
	WaitMillis int64 `json:"wait_ms"`
	// Need is what the request needs under limits.
	Need json.RawMessage `json:"need,omitempty"`
}

// Waiting is sent at once, and again and again, while the request waits.
type Waiting struct{}

// Entered answers an enter. The request has its place until the stream ends.
type Entered struct {
	// Waited means that the request has waited.
	Waited bool `json:"waited,omitempty"`
	// Refused is one of the Refused… constants if the request got no place.
	Refused string `json:"refused,omitempty"`
	// Limits is what the owner says of the limits.
	Limits json.RawMessage `json:"limits,omitempty"`
}

// Used is sent by the peer at the end of a request under limits.
type Used struct {
	Used json.RawMessage `json:"used"`
}

// The values of [Entered.Refused].
const (
	RefusedFull    = "full"    // too many requests wait
	RefusedTimeout = "timeout" // the request has waited too long
	RefusedLimit   = "limit"   // see Limits
)

func (Enter) kind() string   { return "enter" }
func (Waiting) kind() string { return "waiting" }
func (Entered) kind() string { return "entered" }
func (Used) kind() string    { return "used" }

// EnterAt asks a peer for a place, on a new stream, and waits for the answer. It calls waits when the
// peer reports that the request waits. [Refuse] returns the place. EnterAt fails with the cause of
// ctx's end, or wraps an error of this package; the stream has then ended.
func EnterAt(ctx context.Context, s Stream, m Enter, waits func()) (Entered, error) {
	stop := context.AfterFunc(ctx, func() {
		stopReading(s, CodeCancelled)
		s.CancelWrite(CodeCancelled.wire())
	})
	answer, err := enterAt(s, m, waits)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		Refuse(s, CodeCancelled)
		return Entered{}, streamError(ctx, err)
	}
	return answer, nil
}

// LeaveAt returns a place of EnterAt, with what the request has used.
func LeaveAt(s Stream, m Used) {
	if NewControl(s).Send(m) != nil {
		Refuse(s, CodeNone)
		return
	}
	_ = s.Close() // m still arrives
	s.CancelRead(CodeNone.wire())
}

// enterAt sends m and receives the answer.
func enterAt(s Stream, m Enter, waits func()) (Entered, error) {
	if err := Ask(s, m); err != nil {
		return Entered{}, err
	}
	for control := NewControl(s); ; {
		answer, err := control.Receive()
		if err != nil {
			return Entered{}, err
		}
		switch answer := answer.(type) {
		case Waiting:
			waits()
		case Entered:
			return answer, nil
		default:
			return Entered{}, Malformed("an answer to an enter that is a message of another type")
		}
	}
}
