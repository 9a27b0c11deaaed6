package limits

import "time"

// Level is the state of the limits of a subject. It is not safe for concurrent use.
type Level struct {
	of     Subject
	whole  UsageLimits // of all edges of a cluster together
	limits UsageLimits // this edge's share

	requests, perMinute bucket // perMinute is of tokens

	day                int64 // since 1970
	month              int   // since year 0
	dayEnds, monthEnds int64 // in milliseconds since 1970

	ofDay   Sums // of ended requests
	ofMonth Sums
	loaded  bool // the sums include past usage

	notified [quotas]struct { // by Crossed, for each quota
		period  int64 // the day or month
		percent int
	}

	open     int   // number of reservations
	reserved Sums  // their sums
	output   int64 // mean tokens of an answer, 0: unknown
	largest  int64 // tokens of the largest answer
	lastUsed time.Time
}

// Sums are what was used in a day or month.
type Sums struct{ Requests, Tokens, BusyMillis int64 }

func (s *Sums) add(u Used) {
	s.Requests += u.Requests
	s.Tokens += u.Tokens
	s.BusyMillis += u.BusyMillis
}

// max returns the larger sums.
func (s Sums) max(o Sums) Sums {
	return Sums{max(s.Requests, o.Requests), max(s.Tokens, o.Tokens), max(s.BusyMillis, o.BusyMillis)}
}

// Add adds the sums of other requests.
func (s *Sums) Add(o Sums) {
	s.add(Used{Requests: o.Requests, Tokens: o.Tokens, BusyMillis: o.BusyMillis})
}

// NewLevel returns the state of a subject without requests.
func NewLevel(of Subject, now time.Time) *Level { return &Level{of: of, lastUsed: now} }

// Set sets the limits, of which this edge of a cluster has a share: see [UsageLimits.Share].
func (l *Level) Set(limits UsageLimits, edges int) { l.whole, l.limits = limits, limits.Share(edges) }

// Limits returns the limits.
func (l *Level) Limits() UsageLimits { return l.whole }

// Loaded reports whether the sums include past usage.
func (l *Level) Loaded(now time.Time) bool {
	l.advance(now)
	return l.loaded
}

// Load sets the usage of ended requests in the current day and month. It never
// lowers the sums: other gateways may not have published all that was counted here.
func (l *Level) Load(now time.Time, day, month Sums) {
	l.advance(now)
	l.ofDay, l.ofMonth, l.loaded = l.ofDay.max(day), l.ofMonth.max(month), true
	l.Crossed(now) // past crossings were notified before
}

// Forget marks the sums as stale.
func (l *Level) Forget() { l.loaded = false }

// Idle reports whether the level can be dropped: nothing is reserved, it was unused for a while, and
// its buckets are full.
func (l *Level) Idle(now time.Time) bool {
	l.advance(now)
	return l.open == 0 && now.Sub(l.lastUsed) > idleTime && l.requests.full() == 0 && l.perMinute.full() == 0
}

// idleTime is how long a level without requests stays in memory.
const idleTime = 10 * time.Minute

// advance begins a new day or month, and fills the buckets.
func (l *Level) advance(now time.Time) {
	const daySeconds, months = 24 * 60 * 60, 12
	if day := now.Unix() / daySeconds; day != l.day {
		if day < l.day { // the clock was set back: the sums must be read again
			l.loaded, l.ofMonth = false, Sums{}
		}
		l.day, l.ofDay = day, Sums{}
		utc := now.UTC()
		if month := utc.Year()*months + int(utc.Month()); month != l.month {
			l.month, l.ofMonth = month, Sums{}
		}
		l.dayEnds = (day + 1) * daySeconds * 1000
		l.monthEnds = time.Date(utc.Year(), utc.Month()+1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	}
	l.requests.refill(l.limits.RequestsPerMinute, now)
	l.perMinute.refill(l.limits.TokensPerMinute, now)
}

const (
	// firstOutput is the expected size of an answer of a key that has none yet, in tokens.
	firstOutput = 256
	// outputWeight is the weight of the last answer in the mean, as a divisor.
	outputWeight = 8
)

// tokens returns the expected tokens of a request.
func (l *Level) tokens(c Cost) int64 {
	output := int64(firstOutput)
	if l.output > 0 {
		output = l.output
	}
	if c.Output > 0 {
		output = min(output, c.Output)
	}
	return max(c.Input, 0) + output
}

// overQuota returns the refusal of a request if a limit per day or month is reached. The only request of
// a key is not refused because of reservations of other keys: their clients decide how large these are,
// and how long they last.
func (l *Level) overQuota(now time.Time, only bool) *Refusal {
	for _, s := range l.quotas(now) {
		if s.Max == 0 || s.Used < s.Max {
			continue
		}
		running := int64(0)
		switch s.Limit {
		case RequestsPerDay:
			running = l.reserved.Requests
		case TokensPerDay, TokensPerMonth:
			running = l.reserved.Tokens
		}
		if s.Used-running >= s.Max {
			return &Refusal{State: s, WaitMillis: s.ResetMillis, Quota: true}
		}
		if only && s.Limit != RequestsPerDay {
			continue
		}
		return &Refusal{State: s, WaitMillis: busyRetry.Milliseconds()}
	}
	return nil
}

// overRate returns the refusal of a request that a limit per minute does not allow now.
func (l *Level) overRate(tokens int64) *Refusal {
	requests, perMinute := l.requests.wait(1), l.perMinute.wait(min(tokens, int64(l.limits.TokensPerMinute)))
	switch {
	case max(requests, perMinute) == 0:
		return nil
	case requests >= perMinute:
		return &Refusal{State: l.bucketState(RequestsPerMinute, &l.requests), WaitMillis: requests.Milliseconds()}
	}
	return &Refusal{State: l.bucketState(TokensPerMinute, &l.perMinute), WaitMillis: perMinute.Milliseconds()}
}

const (
	// While a quota has more left than fewAnswers answers of the size that a client allows, and one for
	// each running request, requests reserve only their expected usage. Clients can influence that.
	fewAnswers = 16
	// unboundedOutput is the minimum output that a request reserves later if the client sets no limit.
	unboundedOutput = 4096
	// reservedShare is the largest part of a limit per day or month that one request reserves, as a
	// divisor: a prompt may seem large because of an image, and must not keep others out.
	reservedShare = 2
)

// quotaTokens returns the tokens that a request reserves of the limits per day and month: its expected
// usage, or its largest possible usage once little is left.
func (l *Level) quotaTokens(c Cost, expected int64) int64 {
	output := min(c.Output, MaxLimit)
	if output <= 0 {
		output = max(l.largest, unboundedOutput)
	}
	tokens := expected
	for _, quota := range [...]struct {
		limit int
		used  int64
	}{{l.limits.TokensPerDay, l.ofDay.Tokens}, {l.limits.TokensPerMonth, l.ofMonth.Tokens}} {
		left := int64(quota.limit) - quota.used - l.reserved.Tokens
		if quota.limit > 0 && left < (fewAnswers+int64(l.open))*output {
			tokens = max(tokens, max(c.Input, 0)+output)
		}
	}
	for _, limit := range [...]int{l.limits.TokensPerDay, l.limits.TokensPerMonth} {
		if limit > 0 {
			tokens = min(tokens, int64(limit/reservedShare+1))
		}
	}
	return tokens
}

// take reserves a request.
func (l *Level) take(c Cost) part {
	expected := l.tokens(c)
	p := part{
		level: l, requests: 1, tokens: l.quotaTokens(c, expected),
		bucket: min(expected, int64(l.limits.TokensPerMinute)),
	}
	l.open++
	l.lastUsed = l.requests.refilled
	l.requests.take(p.requests)
	l.perMinute.take(p.bucket)
	l.reserved.Requests += p.requests
	l.reserved.Tokens += p.tokens
	return p
}

// settle ends a reservation. A request counts in the day and the month in which it ends.
func (l *Level) settle(now time.Time, p part, used Used) {
	l.advance(now)
	l.open--
	l.lastUsed = now
	l.requests.take(used.Requests - p.requests)
	l.perMinute.take(used.Tokens - p.bucket)
	l.reserved.Requests -= p.requests
	l.reserved.Tokens -= p.tokens
	l.ofDay.add(used)
	l.ofMonth.add(used)
	l.largest = max(l.largest, used.Output)
	switch {
	case used.Output > 0 && l.output == 0:
		l.output = used.Output
	case used.Output > 0:
		l.output = max(l.output+(used.Output-l.output)/outputWeight, 1)
	}
}

// bucketState returns the state of a limit per minute. What overdraws the bucket is not part of Used.
func (l *Level) bucketState(limit string, b *bucket) State {
	total := int64(b.limit)
	used := min(total-floor(b.level), total)
	return l.share(State{Limit: limit, Subject: l.of, Max: total, Used: used, ResetMillis: b.full().Milliseconds()})
}

// share sets Total of the state of a limit that edges share.
func (l *Level) share(s State) State {
	if total := int64(*l.whole.Field(s.Limit)); total != s.Max {
		s.Total = total
	}
	return s
}

// floor rounds down to a whole number.
func floor(f float64) int64 {
	n := int64(f)
	if float64(n) > f {
		n--
	}
	return n
}

// quotas is the number of limits per day and month.
const quotas = 4

// quotas returns the states of the limits per day and month. Max is 0 if there is none.
func (l *Level) quotas(now time.Time) [quotas]State {
	const second = 1000 // milliseconds
	ofDay, ofMonth := l.dayEnds-now.UnixMilli(), l.monthEnds-now.UnixMilli()
	return [...]State{
		{RequestsPerDay, l.of, int64(l.limits.RequestsPerDay), 0, l.ofDay.Requests + l.reserved.Requests, ofDay},
		{TokensPerDay, l.of, int64(l.limits.TokensPerDay), 0, l.ofDay.Tokens + l.reserved.Tokens, ofDay},
		{TokensPerMonth, l.of, int64(l.limits.TokensPerMonth), 0, l.ofMonth.Tokens + l.reserved.Tokens, ofMonth},
		{SecondsPerDay, l.of, int64(l.limits.SecondsPerDay), 0, l.ofDay.BusyMillis / second, ofDay},
	}
}

// Crossing is a quota of which 80 or 100 percent are used.
type Crossing struct {
	State
	Percent int // 80 or 100
}

// Crossed returns the quotas of which 80 or 100 percent are used since the last call. Each is
// returned once in its day or month.
func (l *Level) Crossed(now time.Time) (crossed []Crossing) {
	l.advance(now)
	for i, s := range l.quotas(now) {
		notified, period := &l.notified[i], l.day
		if s.Limit == TokensPerMonth {
			period = int64(l.month)
		}
		if notified.period != period {
			notified.period, notified.percent = period, 0
		}
		if percent := s.Percent(); percent > notified.percent {
			notified.percent = percent
			crossed = append(crossed, Crossing{s, percent})
		}
	}
	return crossed
}

// AppendStates appends the states of the limits that are set.
func (l *Level) AppendStates(states []State, now time.Time) []State {
	l.advance(now)
	if l.limits.RequestsPerMinute > 0 {
		states = append(states, l.bucketState(RequestsPerMinute, &l.requests))
	}
	if l.limits.TokensPerMinute > 0 {
		states = append(states, l.bucketState(TokensPerMinute, &l.perMinute))
	}
	for _, s := range l.quotas(now) {
		if s.Max > 0 {
			states = append(states, s)
		}
	}
	return states
}

// Ended returns the usage of ended requests in this day and month.
func (l *Level) Ended(now time.Time) (day, month Sums) {
	l.advance(now)
	return l.ofDay, l.ofMonth
}
