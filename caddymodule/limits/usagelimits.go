package limits

// UsageLimits limit the usage of a key, or of all keys of an account together. 0 is
// no limit. Days and months are those of UTC.
type UsageLimits struct {
	// Requests are those that are sent to a model.
	RequestsPerMinute int `json:"requests_per_minute,omitempty"`
	RequestsPerDay    int `json:"requests_per_day,omitempty"`
	// Tokens are those of prompts and answers.
	TokensPerMinute int `json:"tokens_per_minute,omitempty"`
	TokensPerDay    int `json:"tokens_per_day,omitempty"`
	TokensPerMonth  int `json:"tokens_per_month,omitempty"`
	// SecondsPerDay is for the time that model servers are busy, summed over all requests.
	SecondsPerDay int `json:"seconds_per_day,omitempty"`
	// Concurrency is how many requests may run at a time. Further ones wait.
	Concurrency int `json:"concurrency,omitempty"`
	// MaxOutputTokens is for each answer.
	MaxOutputTokens int `json:"max_output_tokens,omitempty"`
}

// Any reports whether a request must be admitted: whether there is a limit other than
// MaxOutputTokens.
func (l UsageLimits) Any() bool {
	l.MaxOutputTokens = 0
	return l != UsageLimits{}
}

// HasQuota reports whether there is a limit per day or month.
func (l UsageLimits) HasQuota() bool {
	return l.RequestsPerDay > 0 || l.TokensPerDay > 0 || l.TokensPerMonth > 0 || l.SecondsPerDay > 0
}

// Most is the largest value of a limit.
const Most = 2_000_000_000

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
