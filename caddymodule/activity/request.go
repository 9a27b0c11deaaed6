package activity

import (
	"strings"
	"time"
)

// Request is the record of a completed request. Its JSON is used by the API and the
// file.
type Request struct {
	ID               string    `json:"id"`   // req_…
	Time             time.Time `json:"time"` // to the millisecond
	KeyID            string    `json:"key_id"`
	KeyName          string    `json:"key_name"`
	Person           string    `json:"person,omitempty"` // behind the key, as its client says
	Deployment       string    `json:"deployment"`       // public name
	Model            string    `json:"model,omitempty"`  // from the client, if it is not the deployment
	Connector        string    `json:"connector_id,omitempty"`
	Dialect          string    `json:"dialect"`
	Operation        string    `json:"operation"` // path below /v1, or [Test] or [Playground]
	Status           int       `json:"status"`
	ErrorClass       string    `json:"error_class,omitempty"` // CallerError and so on, "" for success
	ErrorCode        string    `json:"error_code,omitempty"`
	Error            string    `json:"error,omitempty"`        // text of the gateway, never of the client or the model server
	Reason           string    `json:"reason,omitempty"`       // what the caller may not see, such as "outside the scope …"
	ServerError      string    `json:"server_error,omitempty"` // class of the model server's text, such as "out_of_memory"
	Advice           string    `json:"advice,omitempty"`       // what to do; only of a request that is shown alone
	Refusals         int       `json:"refusals,omitempty"`     // number of requests in this entry, if it counts them
	IDs              []string  `json:"ids,omitempty"`          // the last ids of the requests in this entry, if it has several
	first            string    // the first id of this entry
	Streamed         bool      `json:"streamed"`
	Dropped          string    `json:"dropped,omitempty"`    // parts that were not sent to the model; at most 1 KiB
	MaxTokens        int       `json:"max_tokens,omitempty"` // sent in place of a higher limit that did not fit into the window
	WaitMillis       float64   `json:"wait_ms,omitempty"`    // in the queue, and for a connector
	DurationMillis   float64   `json:"duration_ms"`
	FirstTokenMillis float64   `json:"first_token_ms"`              // since the model server got the request; 0: none
	TokensPerSecond  float64   `json:"tokens_per_second,omitempty"` // after the first one; 0: unknown
	BusyMillis       float64   `json:"busy_ms,omitempty"`           // from sending to the model server to the answer's end
	InputTokens      int       `json:"input_tokens"`
	CachedTokens     int       `json:"cached_tokens,omitempty"` // part of InputTokens
	OutputTokens     int       `json:"output_tokens"`
	ReasoningTokens  int       `json:"reasoning_tokens,omitempty"` // part of OutputTokens
	Estimated        bool      `json:"tokens_estimated,omitempty"` // the model server did not count them
	Amount           float64   `json:"amount,omitempty"`           // of what Unit names, 0: unknown
	Unit             string    `json:"unit,omitempty"`             // "seconds" of audio, "characters" spoken or "images"
}

// The classes of errors name who is at fault.
const (
	CallerError   = "caller"
	PolicyError   = "policy"
	GatewayError  = "gateway"
	UpstreamError = "upstream"
)

// The operations of the console.
const (
	Test       = "test"
	Playground = "playground"
)

// FromConsole reports whether the console has sent the request without a key.
func (r *Request) FromConsole() bool {
	return r.KeyID == "" && (r.Operation == Test || r.Operation == Playground)
}

// StatusClientGone is the status of a request whose client disconnected before the end.
const StatusClientGone = 499

// Millis returns a duration in whole milliseconds, at least 1, because 0 means none.
func Millis(d time.Duration) float64 {
	return float64(max(1, d.Round(time.Millisecond).Milliseconds()))
}

// maxField is the maximum size of each string of a request, in bytes.
const maxField = 256

// clip truncates the time and the strings, some of which clients choose.
func (r *Request) clip() {
	r.Time = r.Time.UTC().Truncate(time.Millisecond)
	for _, field := range [...]*string{
		&r.ID, &r.KeyID, &r.KeyName, &r.Person, &r.Deployment, &r.Model, &r.Connector, &r.Dialect,
		&r.Operation, &r.ErrorCode, &r.Error, &r.Reason, &r.ServerError,
	} {
		if len(*field) > maxField {
			// Clone, so that the rest of the string can be freed.
			*field = strings.Clone(strings.ToValidUTF8((*field)[:maxField], ""))
		}
	}
}
