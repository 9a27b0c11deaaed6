package activity

import (
	"strings"
	"time"
)

// Request is the record of a completed request. Its JSON is used by the API and the
// store.
type Request struct {
	ID               string    `json:"id"`   // req_…
	Time             time.Time `json:"time"` // to the millisecond
	KeyID            string    `json:"key_id"`
	KeyName          string    `json:"key_name"`
	Deployment       string    `json:"deployment"` // public name
	Dialect          string    `json:"dialect"`
	Operation        string    `json:"operation"`
	Status           int       `json:"status"`
	ErrorClass       string    `json:"error_class,omitempty"` // CallerError and so on, "" for success
	Streamed         bool      `json:"streamed"`
	DurationMillis   float64   `json:"duration_ms"`
	FirstTokenMillis float64   `json:"first_token_ms"`    // 0: none
	BusyMillis       float64   `json:"busy_ms,omitempty"` // from sending it to the model server to the end of the answer
	InputTokens      int       `json:"input_tokens"`
	CachedTokens     int       `json:"cached_tokens,omitempty"` // part of InputTokens
	OutputTokens     int       `json:"output_tokens"`
	ReasoningTokens  int       `json:"reasoning_tokens,omitempty"` // part of OutputTokens
	Estimated        bool      `json:"tokens_estimated,omitempty"` // the model server did not count them
}

// The classes of errors: whose fault a failed request is.
const (
	CallerError   = "caller"
	PolicyError   = "policy"
	GatewayError  = "gateway"
	UpstreamError = "upstream"
)

// Millis returns a duration in whole milliseconds, at least 1, because 0 means none.
func Millis(d time.Duration) float64 {
	return float64(max(1, d.Round(time.Millisecond).Milliseconds()))
}

// maxField is the maximum size of each string of a request, in bytes.
const maxField = 256

// clip truncates the time and the strings, some of which clients choose.
func (r *Request) clip() {
	r.Time = r.Time.UTC().Truncate(time.Millisecond)
	for _, field := range [...]*string{&r.ID, &r.KeyID, &r.KeyName, &r.Deployment, &r.Dialect, &r.Operation} {
		if len(*field) > maxField {
			// Clone, so that the rest of the string can be freed.
			*field = strings.Clone(strings.ToValidUTF8((*field)[:maxField], ""))
		}
	}
}
