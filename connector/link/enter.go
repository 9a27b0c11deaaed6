package link

import (
	"context"
	"encoding/json"
)

// Enter asks a peer for a permit for one request. The peer is the owner of the deployment's queue, or of
// the limits of the account. It is sent with [Ask], on a stream of its own.
type Enter struct {
	Account    string `json:"account"`
	Deployment string `json:"deployment,omitempty"` // "": the limits of the key and the account
	Owner      string `json:"owner"`                // of the key: owners take turns
	Key        string `json:"key"`                  // id: the keys of an owner take turns
	// Length is how many requests may wait, WaitMillis how long this one may.
	Length     int   `json:"length"`
	WaitMillis int64 `json:"wait_ms"`
	// Need is what the request needs under limits: a queue.Need of the gateway.
	Need json.RawMessage `json:"need,omitempty"`
}

// Waiting is sent soon, and repeatedly, while the request waits.
type Waiting struct{}

// Entered answers an enter. The request has its permit until the stream ends.
type Entered struct {
	// Waited means that the request has waited.
	Waited bool `json:"waited,omitempty"`
	// Refused is one of the Refused… constants if the request got no permit.
	Refused string `json:"refused,omitempty"`
	// Limits is the owner's answer about the limits.
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

// AskPermit sends m to a peer on a new stream and waits for the answer. It calls waits whenever the
// peer reports that the request waits. [Refuse] releases the permit. AskPermit fails with the cause of
// ctx's end, or with an error of this package; the stream has then ended.
func AskPermit(ctx context.Context, s Stream, m Enter, waits func()) (Entered, error) {
	stop := context.AfterFunc(ctx, func() {
		stopReading(s, CodeCancelled)
		s.CancelWrite(CodeCancelled.wire())
	})
	answer, err := askPermit(s, m, waits)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		Refuse(s, CodeCancelled)
		return Entered{}, streamError(ctx, err)
	}
	return answer, nil
}

// ReleasePermit releases a permit of [AskPermit], and reports what the request has used.
func ReleasePermit(s Stream, m Used) {
	if NewControl(s).Send(m) != nil {
		Refuse(s, CodeNone)
		return
	}
	_ = s.Close() // m still arrives
	s.CancelRead(CodeNone.wire())
}

// askPermit sends m and receives the answer.
func askPermit(s Stream, m Enter, waits func()) (Entered, error) {
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
			return Entered{}, Malformed("the answer to an enter has another type")
		}
	}
}
