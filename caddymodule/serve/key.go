package serve

import (
	"encoding/json"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
)

// keyInfo is the answer to GET /v1/key, with OpenRouter's names. Limits and usage are in tokens.
type keyInfo struct {
	Label     string     `json:"label"` // the key's name
	Shown     string     `json:"shown"` // the beginning and the end of the secret
	Scope     string     `json:"scope"`
	ExpiresAt *time.Time `json:"expires_at"` // null: never

	// The quota of the key or its account with the fewest tokens left; null: no quota.
	Limit          *int64  `json:"limit"`
	LimitRemaining *int64  `json:"limit_remaining"`
	LimitReset     *string `json:"limit_reset"` // daily or monthly

	UsageDaily      int64 `json:"usage_daily"` // since midnight, UTC
	UsageMonthly    int64 `json:"usage_monthly"`
	RequestsDaily   int64 `json:"requests_daily"` // that models received
	RequestsMonthly int64 `json:"requests_monthly"`

	// The lower limit of the key and its account; absent: no limit.
	Concurrency     int        `json:"concurrency,omitempty"`
	MaxOutputTokens int        `json:"max_output_tokens,omitempty"`
	Limits          []keyLimit `json:"limits"`
}

// keyLimit is a limit of the key, or of its account.
type keyLimit struct {
	Limit     string    `json:"limit"`           // such as tokens_per_day
	Of        string    `json:"of"`              // account, group or key
	Group     string    `json:"group,omitempty"` // its name
	Max       int64     `json:"max"`
	Used      int64     `json:"used"` // including what running requests may use
	Remaining int64     `json:"remaining"`
	ResetsAt  time.Time `json:"resets_at"` // when nothing is used
}

// getKey returns what the key may use, and what it has used.
func (c *clientRequest) getKey() ([]byte, *dialect.Error) {
	ex := c.exchange
	groups, _ := ex.Key.GroupLimits()
	usage, err := c.Limiter.Usage(c.ctx, ex.Account, ex.appendLevels(nil, groups))
	if err != nil {
		if c.ctx.Err() != nil {
			return nil, dialect.Overloaded("The request was canceled.")
		}
		return nil, c.internalError("read the limits of a key", err)
	}
	key := ex.Key.Key()
	concurrency, _ := ex.lowest(func(l limits.UsageLimits) int { return l.Concurrency })
	output, _ := ex.lowest(maxOutput)
	info := keyInfo{
		Label: key.Name, Shown: key.Shown, Scope: key.Scope, ExpiresAt: key.ExpiresAt,
		UsageDaily: usage.Day.Tokens, UsageMonthly: usage.Month.Tokens,
		RequestsDaily: usage.Day.Requests, RequestsMonthly: usage.Month.Requests,
		Concurrency: concurrency, MaxOutputTokens: output, Limits: []keyLimit{},
	}
	now := time.Now().UTC()
	for _, s := range usage.States {
		info.Limits = append(info.Limits, keyLimit{
			s.Limit, s.Of, ex.groupName(s.Subject), s.Max, s.Used, s.Remaining(), now.Add(s.Reset()).Round(time.Second),
		})
		period := map[string]string{limits.TokensPerDay: "daily", limits.TokensPerMonth: "monthly"}[s.Limit]
		if remaining := s.Remaining(); period != "" && (info.Limit == nil || remaining < *info.LimitRemaining) {
			info.Limit, info.LimitRemaining, info.LimitReset = &s.Max, &remaining, &period
		}
	}
	body, err := json.Marshal(map[string]keyInfo{"data": info})
	if err != nil {
		return nil, c.internalError("encode the limits of a key", err)
	}
	return append(body, '\n'), nil
}
