// Package limits decides when the requests of a key may be sent to a model: by the limits of
// the key, and by those of its account for all keys together.
//
// Limits per minute are token buckets. Limits per day and month are sums over calendar days
// and months in UTC. A request reserves what it is expected to use, in all of them or in none,
// and settles when it has ended. So concurrent requests cannot exceed a limit by more than
// their estimates were wrong, and what was used in excess is paid for by later ones. Once little is
// left of a day or month, a request reserves what its client allows instead of what is expected.
package limits

import (
	"fmt"
	"time"
)

// The names of the limits, as in JSON.
const (
	RequestsPerMinute = "requests_per_minute"
	RequestsPerDay    = "requests_per_day"
	TokensPerMinute   = "tokens_per_minute"
	TokensPerDay      = "tokens_per_day"
	TokensPerMonth    = "tokens_per_month"
	SecondsPerDay     = "seconds_per_day"
	Concurrency       = "concurrency"
)

// Whose limits they are.
const (
	OfKey     = "key"
	OfAccount = "account"
)

// Cost is what a request is expected to use.
type Cost struct {
	Input  int64 `json:"input"`  // tokens of the prompt
	Output int64 `json:"output"` // tokens that the client allows for the answer; 0: no limit
}

// Used is what a request has used. The zero value means that no model has seen it.
type Used struct {
	Requests   int64 `json:"requests"` // 0 or 1
	Tokens     int64 `json:"tokens"`
	Output     int64 `json:"output"` // part of Tokens
	BusyMillis int64 `json:"busy_ms"`
}

// State is the state of one limit.
type State struct {
	Limit string `json:"limit"` // RequestsPerMinute, …
	Of    string `json:"of"`    // OfKey or OfAccount
	Max   int64  `json:"max"`
	// Used includes what running requests are expected to use. That of a day or month may exceed Max.
	Used int64 `json:"used"`
	// ResetMillis is the time until nothing is used: until a bucket is full, or until the
	// end of the day or month.
	ResetMillis int64 `json:"reset_ms"`
}

// Remaining returns what may still be used.
func (s State) Remaining() int64 { return max(s.Max-s.Used, 0) }

// Percent returns 100 if all is used, 80 if at least 80 percent are used, or 0.
func (s State) Percent() int {
	const most, all = 80, 100
	switch {
	case s.Max == 0:
		return 0
	case s.Used >= s.Max:
		return all
	case s.Used*all >= s.Max*most:
		return most
	}
	return 0
}

// Reset returns the time until nothing is used.
func (s State) Reset() time.Duration { return time.Duration(s.ResetMillis) * time.Millisecond }

// PerMinute reports whether it is a limit per minute.
func (s State) PerMinute() bool { return s.Limit == RequestsPerMinute || s.Limit == TokensPerMinute }

// Look is what the limits of a key and its account leave.
type Look struct {
	States     []State
	Day, Month Sums // that requests with the key have used which have ended
}

// Refusal is the error of a request that may not run.
type Refusal struct {
	State
	// WaitMillis is the time until the request may succeed.
	WaitMillis int64 `json:"wait_ms"`
	// Quota means that the limit of a day or month is used up.
	Quota bool `json:"quota"`
	// States are those of all limits of the key and its account.
	States []State `json:"states,omitempty"`
}

// Wait returns the time until the request may succeed.
func (r *Refusal) Wait() time.Duration { return time.Duration(r.WaitMillis) * time.Millisecond }

// Error implements error.
func (r *Refusal) Error() string {
	return fmt.Sprintf("the limit %s of the %s, %d, is reached", r.Limit, r.Of, r.Max)
}

// busyRetry is after what time a request may be sent again that a quota refuses because of
// requests that are running. They may use less than expected.
const busyRetry = time.Second

// Reservation is what a request has reserved. The zero value has reserved nothing.
type Reservation struct {
	parts [2]part
}

// part is what is reserved of one level.
type part struct {
	level    *Level
	requests int64
	tokens   int64
	bucket   int64 // tokens that were taken from the bucket
}

// Reserve reserves a request at all levels, or at none. If it succeeds, the request may run
// after a time, which is at most most. If it fails, it may succeed after the refusal's time.
// The refusal has no States. The last level is that of the key.
func Reserve(now time.Time, cost Cost, most time.Duration,
	levels ...*Level) (r Reservation, wait time.Duration, refused *Refusal) {
	only := levels[len(levels)-1].open == 0
	for _, l := range levels {
		l.advance(now)
		why := l.overQuota(now, only)
		if why == nil {
			var due time.Duration
			why, due = l.overRate(l.tokens(cost), most)
			wait = max(wait, due)
		}
		if why != nil && (refused == nil || why.WaitMillis > refused.WaitMillis) {
			refused = why
		}
	}
	if refused != nil {
		return r, 0, refused
	}
	for i, l := range levels {
		r.parts[i] = l.take(cost)
	}
	return r, wait, nil
}

// Settle replaces what was reserved by what was used.
func (r Reservation) Settle(now time.Time, used Used) {
	for _, p := range r.parts {
		if p.level != nil {
			p.level.settle(now, p, used)
		}
	}
}
