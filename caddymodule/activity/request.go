package activity

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Request is what is remembered of one request that has ended.
type Request struct {
	ID         string // req_…
	Time       time.Time
	KeyID      string
	KeyName    string
	Deployment string // public name
	Dialect    string
	Operation  string
	Status     int
	Streamed   bool
	Duration   time.Duration
	FirstToken time.Duration // 0: there was none

	InputTokens  int
	OutputTokens int
	Estimated    bool // the tokens: the model server did not count them
}

// requestJSON is a request as the API and the store have it.
type requestJSON struct {
	ID               string    `json:"id"`
	Time             time.Time `json:"time"`
	KeyID            string    `json:"key_id"`
	KeyName          string    `json:"key_name"`
	Deployment       string    `json:"deployment"`
	Dialect          string    `json:"dialect"`
	Operation        string    `json:"operation"`
	Status           int       `json:"status"`
	Streamed         bool      `json:"streamed"`
	DurationMillis   int64     `json:"duration_ms"`
	FirstTokenMillis int64     `json:"first_token_ms"`
	InputTokens      int       `json:"input_tokens"`
	OutputTokens     int       `json:"output_tokens"`
	Estimated        bool      `json:"tokens_estimated,omitempty"`
}

// MarshalJSON writes durations in milliseconds.
func (r Request) MarshalJSON() ([]byte, error) {
	return json.Marshal(requestJSON{
		ID: r.ID, Time: r.Time.UTC().Truncate(time.Millisecond), KeyID: r.KeyID, KeyName: r.KeyName,
		Deployment: r.Deployment, Dialect: r.Dialect, Operation: r.Operation, Status: r.Status, Streamed: r.Streamed,
		DurationMillis: millis(r.Duration), FirstTokenMillis: millis(r.FirstToken),
		InputTokens: r.InputTokens, OutputTokens: r.OutputTokens, Estimated: r.Estimated,
	})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Request) UnmarshalJSON(data []byte) error {
	var j requestJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return fmt.Errorf("reading a request of the activity: %w", err)
	}
	*r = Request{
		ID: j.ID, Time: j.Time, KeyID: j.KeyID, KeyName: j.KeyName,
		Deployment: j.Deployment, Dialect: j.Dialect, Operation: j.Operation, Status: j.Status, Streamed: j.Streamed,
		Duration: time.Duration(j.DurationMillis) * time.Millisecond, FirstToken: time.Duration(j.FirstTokenMillis) * time.Millisecond,
		InputTokens: j.InputTokens, OutputTokens: j.OutputTokens, Estimated: j.Estimated,
	}
	return nil
}

// millis rounds, but nothing that was becomes 0, which stands for none.
func millis(d time.Duration) int64 {
	if d > 0 {
		return max(1, d.Round(time.Millisecond).Milliseconds())
	}
	return 0
}

// maxField bounds, in bytes, each text of a request that is kept.
const maxField = 256

// clip bounds the texts, some of which clients choose.
func (r *Request) clip() {
	for _, field := range [...]*string{&r.ID, &r.KeyID, &r.KeyName, &r.Deployment, &r.Dialect, &r.Operation} {
		if len(*field) > maxField {
			// A copy, so that the rest is not held in memory.
			*field = strings.Clone(strings.ToValidUTF8((*field)[:maxField], ""))
		}
	}
}
