package limits

// UsageLimits limit the usage of a key, or of all keys of an account together. 0 is
// no limit. Days and months are those of UTC.
type UsageLimits struct {
	RequestsPerMinute int `json:"requests_per_minute,omitempty" help:"Requests to models per minute"`
	RequestsPerDay    int `json:"requests_per_day,omitempty" help:"Requests to models per day"`
	TokensPerMinute   int `json:"tokens_per_minute,omitempty" help:"Tokens of prompts and answers per minute"`
	TokensPerDay      int `json:"tokens_per_day,omitempty" help:"Tokens of prompts and answers per day"`
	TokensPerMonth    int `json:"tokens_per_month,omitempty" help:"Tokens of prompts and answers per month"`
	SecondsPerDay     int `json:"seconds_per_day,omitempty" help:"Compute seconds per day: how long model servers may work"`
	Concurrency       int `json:"concurrency,omitempty" help:"Requests that may run at a time; further ones wait"`
	MaxOutputTokens   int `json:"max_output_tokens,omitempty" help:"Max output tokens of each answer"`
}

// Any reports whether a request must be admitted: whether there is a limit other than
// MaxOutputTokens.
func (l UsageLimits) Any() bool {
	l.MaxOutputTokens = 0
	return l != UsageLimits{}
}

// Share returns the part of one of so many edges of a cluster: of the limits per minute and of concurrency, rounded up.
func (l UsageLimits) Share(edges int) UsageLimits {
	for _, limit := range [...]*int{&l.RequestsPerMinute, &l.TokensPerMinute, &l.Concurrency} {
		*limit = (*limit + edges - 1) / edges
	}
	return l
}

// HasQuota reports whether there is a limit per day or month.
func (l UsageLimits) HasQuota() bool {
	return l.RequestsPerDay > 0 || l.TokensPerDay > 0 || l.TokensPerMonth > 0 || l.SecondsPerDay > 0
}

// Lowest returns the lower one of each limit.
func (l UsageLimits) Lowest(o UsageLimits) UsageLimits {
	for _, f := range fields {
		if mine, other := f.of(&l), *f.of(&o); other > 0 && (*mine == 0 || other < *mine) {
			*mine = other
		}
	}
	return l
}

// MaxLimit is the largest value of a limit.
const MaxLimit = 2_000_000_000

// fields are the limits with their names in JSON.
var fields = []struct {
	name string
	of   func(*UsageLimits) *int
}{
	{"requests_per_minute", func(l *UsageLimits) *int { return &l.RequestsPerMinute }},
	{"requests_per_day", func(l *UsageLimits) *int { return &l.RequestsPerDay }},
	{"tokens_per_minute", func(l *UsageLimits) *int { return &l.TokensPerMinute }},
	{"tokens_per_day", func(l *UsageLimits) *int { return &l.TokensPerDay }},
	{"tokens_per_month", func(l *UsageLimits) *int { return &l.TokensPerMonth }},
	{"seconds_per_day", func(l *UsageLimits) *int { return &l.SecondsPerDay }},
	{"concurrency", func(l *UsageLimits) *int { return &l.Concurrency }},
	{"max_output_tokens", func(l *UsageLimits) *int { return &l.MaxOutputTokens }},
}

// Names returns the names of the limits in JSON, in order.
func Names() []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

// Field returns a pointer to the limit with this name, nil if the name is unknown.
func (l *UsageLimits) Field(name string) *int {
	for _, f := range fields {
		if f.name == name {
			return f.of(l)
		}
	}
	return nil
}
