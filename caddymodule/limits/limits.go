// Package limits decides when the requests of a key may be sent to a model: by limits at several levels, from those of
// the account for all keys together to those of the key.
//
// Limits per minute are token buckets. Limits per day and month are sums over calendar days
// and months in UTC. A request reserves its expected usage, in all of them or in none,
// and settles when it has ended. Concurrent requests exceed a limit only by the errors of their
// estimates, and later requests are refused until that has flowed in. Once little is left of a day or month, a request
// reserves the largest answer that its client allows.
package limits

import (
	"fmt"
	"slices"
	"strings"
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

// The kinds of subjects.
const (
	OfAccount = "account"
	OfGroup   = "group" // of keys
	OfKey     = "key"
	OfPerson  = "person"
)

// Subject is what limits are of, such as a key or an account.
type Subject struct {
	Of string `json:"of"` // account, group, key or person
	ID string `json:"id"` // of the account, the group or the key; of a person, see [PersonOf]
}

// AppendLevels appends the subjects whose limits the requests of a key obey, from the account over the groups to the
// key.
func AppendLevels(levels []Subject, account string, groups []Subject, key string) []Subject {
	return append(append(append(levels, Subject{OfAccount, account}), groups...), Subject{OfKey, key})
}

// PersonOf returns the subject of a person behind a key.
func PersonOf(key, person string) Subject { return Subject{OfPerson, key + "/" + person} }

// Person returns the key and the name of a person.
func (s Subject) Person() (key, name string) {
	key, name, _ = strings.Cut(s.ID, "/")
	return key, name
}

// Cost is the expected usage of a request.
type Cost struct {
	Input  int64 `json:"input"`  // tokens of the prompt
	Output int64 `json:"output"` // tokens that the client allows for the answer; 0: no limit
}

// Used is the usage of a request. The zero value means that no model has seen it.
type Used struct {
	Requests   int64 `json:"requests"` // 0 or 1
	Tokens     int64 `json:"tokens"`
	Output     int64 `json:"output"` // part of Tokens
	BusyMillis int64 `json:"busy_ms"`
}

// State is the state of one limit.
type State struct {
	Limit string `json:"limit"` // RequestsPerMinute, …
	Subject
	Max int64 `json:"max"`
	// Total is the limit of which Max is the share of this edge of a cluster; 0: Max is the limit.
	Total int64 `json:"total,omitempty"`
	// Used includes the reservations of running requests. For a day or month, it may exceed Max.
	Used int64 `json:"used"`
	// ResetMillis is the time until nothing is used: until the bucket is full, or the day or month ends.
	ResetMillis int64 `json:"reset_ms"`
}

// Remaining returns the rest that may be used.
func (s State) Remaining() int64 { return max(s.Max-s.Used, 0) }

// Percent returns 100 if all is used, 80 if at least 80 percent are used, or 0.
func (s State) Percent() int {
	const part, all = 80, 100
	switch {
	case s.Max == 0:
		return 0
	case s.Used >= s.Max:
		return all
	case s.Used*all >= s.Max*part:
		return part
	}
	return 0
}

// Reset returns the time until nothing is used.
func (s State) Reset() time.Duration { return time.Duration(s.ResetMillis) * time.Millisecond }

// PerMinute reports whether it is a limit per minute.
func (s State) PerMinute() bool { return s.Limit == RequestsPerMinute || s.Limit == TokensPerMinute }

// Usage contains the states of the limits of all levels, and the usage of the key.
type Usage struct {
	States     []State
	Day, Month Sums // of ended requests
}

// Refusal is the error of a request that a limit refuses.
type Refusal struct {
	State
	// WaitMillis is the time until the request may succeed.
	WaitMillis int64 `json:"wait_ms"`
	// Quota means that a limit per day or month is used up.
	Quota bool `json:"quota"`
	// States contains the states of the limits of all levels.
	States []State `json:"states,omitempty"`
}

// Wait returns the time until the request may succeed.
func (r *Refusal) Wait() time.Duration { return time.Duration(r.WaitMillis) * time.Millisecond }

// Error implements error.
func (r *Refusal) Error() string {
	return fmt.Sprintf("the limit %s of the %s, %d, is reached", r.Limit, r.Of, r.Max)
}

// busyRetry is the retry delay while running requests have reserved the rest of a quota. They may use less than
// expected.
const busyRetry = time.Second

// Reservation is the reservation of a request. The zero value is empty.
type Reservation struct {
	first [UsualLevels]part
	more  []part
}

// UsualLevels is the number of levels of most requests, for which limits allocate no memory.
const UsualLevels = 3

// part is the part of one level.
type part struct {
	level    *Level
	requests int64
	tokens   int64
	bucket   int64 // tokens that were taken from the bucket
}

// Reserve reserves the usage of a request at all levels, or at none. If it fails, it may succeed after the
// refusal's time. The refusal has no States.
func Reserve(now time.Time, cost Cost, levels ...*Level) (r Reservation, refused *Refusal) {
	only := slices.ContainsFunc(levels, func(l *Level) bool { return l.of.Of == OfKey && l.open == 0 })
	for _, l := range levels {
		l.advance(now)
		why := l.overQuota(now, only)
		if why == nil {
			why = l.overRate(l.tokens(cost))
		}
		if why != nil && (refused == nil || why.WaitMillis > refused.WaitMillis) {
			refused = why
		}
	}
	if refused != nil {
		return r, refused
	}
	for i, l := range levels {
		if p := l.take(cost); i < UsualLevels {
			r.first[i] = p
		} else {
			r.more = append(r.more, p)
		}
	}
	return r, nil
}

// Settle replaces the reservation by the usage.
func (r Reservation) Settle(now time.Time, used Used) {
	for _, parts := range [...][]part{r.first[:], r.more} {
		for _, p := range parts {
			if p.level != nil {
				p.level.settle(now, p, used)
			}
		}
	}
}
