package activity

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Outcome is how a request ended. Console, command line, API and metrics use these words.
type Outcome string

const (
	Answered Outcome = "ok"
	Failed   Outcome = "failed"  // the gateway, a connector or a model server is at fault
	Refused  Outcome = "refused" // by limits, the queue, a scope, or for its key
	Client   Outcome = "client"  // an invalid request, or a client that left
)

// Count returns how many requests the row stands for.
func (r *Request) Count() int { return max(1, r.Refusals) }

// Outcome returns how the request ended.
func (r *Request) Outcome() Outcome {
	switch r.ErrorClass {
	case "":
		return Answered
	case PolicyError:
		return Refused
	case CallerError:
		return Client
	}
	return Failed
}

// StreamCut is the [Request.Kind] of answers that began and were not completed.
const StreamCut = "stream_cut"

// Kind names the failure of a request: the class of the model server's text, [StreamCut], or the error code; "" for an
// answered request.
func (r *Request) Kind() string {
	switch {
	case r.ServerError != "" && r.ServerError != "other":
		return r.ServerError
	case r.Outcome() == Failed && r.Status/100 == 2:
		return StreamCut
	}
	return cmp.Or(r.ErrorCode, r.ErrorClass)
}

// ConsoleKey stands in a [Query] for the requests of the console, which have no key.
const ConsoleKey = "console"

// Query selects requests of an account. The zero value selects all.
type Query struct {
	Keys      []string // ids, or [ConsoleKey]; nil: all
	Model     string
	Connector string // id
	Outcome   Outcome
	Kind      string // [Request.Kind]
	ID        string
	From      time.Time
	To        time.Time
	Text      string // part of an id, a name or an error, in any case
	Before    string // [Found.Next] of the page before
	Limit     int    // at most so many requests
	Caller    string // id of the user who asks; callers take turns
}

// Found are the requests that a query selects, the newest first.
type Found struct {
	Requests []Request `json:"requests"`
	Next     string    `json:"next,omitempty"` // Before of the next page; "": there is none
	Since    time.Time `json:"since,omitzero"` // older requests are not kept
}

// Matches reports whether the query selects a request, but for Before and Limit.
func (q *Query) Matches(r *Request) bool {
	return (q.Keys == nil || slices.Contains(q.Keys, r.key())) && (q.Model == "" || q.Model == r.Deployment) &&
		(q.Connector == "" || q.Connector == r.Connector) && (q.Outcome == "" || q.Outcome == r.Outcome()) &&
		(q.Kind == "" || q.Kind == r.Kind()) && (q.ID == "" || q.ID == r.ID || slices.Contains(r.IDs, q.ID)) &&
		!r.Time.Before(q.From) && (q.To.IsZero() || r.Time.Before(q.To)) &&
		(q.Text == "" || strings.Contains(strings.ToLower(r.text()), strings.ToLower(q.Text)))
}

// key returns the id of the request's key as in [Query.Keys].
func (r *Request) key() string {
	if r.FromConsole() {
		return ConsoleKey
	}
	return r.KeyID
}

// text returns what [Query.Text] is looked for in.
func (r *Request) text() string {
	return strings.Join([]string{
		r.ID, r.KeyName, r.KeyID, r.Person, r.Deployment, r.Model, r.Dialect, r.Operation, r.ErrorCode, r.Error, r.Reason,
		r.Dropped, strconv.Itoa(r.Status), strings.Join(r.IDs, "\n"),
	}, "\n")
}
