package serve

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/turns"
)

// limitSource implements limits.Source.
type limitSource struct {
	store   *store.Store
	log     *activity.Log
	crossed func(account, key string, c limits.Crossing)
}

// Crossed implements limits.Source.
func (s limitSource) Crossed(account, key string, c limits.Crossing) { s.crossed(account, key, c) }

// LimitsOf implements limits.Source.
func (s limitSource) LimitsOf(account, key string) (ofAccount, ofKey limits.UsageLimits) {
	return s.store.UsageLimits(account, key)
}

// SumsOf implements limits.Source.
func (s limitSource) SumsOf(ctx context.Context, account, key string) (day, month limits.Sums, err error) {
	to := time.Now().UTC()
	from := to.AddDate(0, 0, 1-to.Day())
	today := to.Format(time.DateOnly)
	err = s.log.EachUsage(ctx, account, key, from.Format(time.DateOnly), today, func(r store.UsageRow) error {
		month.Add(r.Sums())
		if r.Day == today {
			day.Add(r.Sums())
		}
		return nil
	})
	return day, month, err
}

// enterLimits waits until the limits of the key and its account allow the request, once for all attempts, and reports
// whether it had to wait.
func (rt *Router) enterLimits(ctx context.Context, m *modelRequest) (waited bool, err error) {
	ex := m.exchange
	if m.judge || ex.idle() {
		return false, nil
	}
	ofAccount, ofKey := ex.backend.Store.UsageLimits(ex.Account, ex.Key.ID())
	if n := dialect.Lowest(ofAccount.MaxOutputTokens, ofKey.MaxOutputTokens); n > 0 {
		m.call.LimitOutput(int64(n))
	}
	if ex.release != nil || !ofAccount.Any() && !ofKey.Any() {
		return false, nil
	}
	cost := limits.Cost{Input: m.size / dialect.BytesPerToken, Output: m.call.OutputLimit()}
	if media := m.media(); media != nil && media.Unit() != "" {
		cost.Input = 0 // the size of a file says nothing about tokens
	}
	start := time.Now()
	permit, err := ex.backend.Limiter.Enter(ctx, limits.Request{
		Account: ex.Account, Client: ex.client(), Cost: cost,
		Length: cmp.Or(rt.QueueLength, turns.DefaultLength), Queue: cmp.Or(rt.QueueWait, turns.DefaultWait),
	})
	if refusal, ok := errors.AsType[*limits.Refusal](err); ok {
		rt.Observer.Limited(refusal.State)
		ex.Reason = refusal.Of + "_" + refusal.Limit
		ex.limitReached = "The " + refusal.Of + " has reached its limit of " + limitOf(refusal).Amount() + "."
		m.answer.header(rateHeader(ex.Operation.Dialect, refusal.States))
	}
	if err != nil {
		return false, limitError(err, ex.Deployment)
	}
	ex.release = permit.Settle
	if permit.Waited() {
		ex.span.limited(time.Since(start))
	}
	m.answer.header(rateHeader(ex.Operation.Dialect, permit.States()))
	return permit.Waited(), nil
}

// limitError returns the client's error for one of [limits.Limiter.Enter].
func limitError(err error, deployment string) error {
	refusal, ok := errors.AsType[*limits.Refusal](err)
	switch {
	case ok:
		return dialect.LimitReached(limitOf(refusal))
	case errors.Is(err, fair.ErrFull):
		return dialect.QueueFull(deployment)
	case errors.Is(err, fair.ErrTimeout):
		return dialect.QueueTimeout(deployment)
	}
	return err
}

// used returns what the request has used of limits, with what its judge has used.
func (rd *routed) used(u dialect.Usage) limits.Used {
	used := rd.judged
	if rd.attempts.reached {
		used.Requests++
		used.Tokens += u.PromptTokens + u.CompletionTokens
		used.Output += u.CompletionTokens
		used.BusyMillis += rd.attempts.busy.Milliseconds()
	}
	return used
}

// limitOf describes a refusal for the client.
func limitOf(r *limits.Refusal) dialect.Limit {
	return dialect.Limit{
		Name: r.Limit, Of: r.Of, Max: r.Max, Total: r.Total, Used: r.Used, Quota: r.Quota,
		Wait: r.Wait(), Reset: time.Now().Add(r.Reset()).UTC(),
	}
}

// rateHeader returns the headers about the tightest limits.
func rateHeader(d dialect.Dialect, states []limits.State) http.Header {
	var requests, tokens *dialect.Allowance
	for _, s := range states {
		tightest := &requests
		switch s.Limit {
		case limits.TokensPerMinute, limits.TokensPerDay, limits.TokensPerMonth:
			tightest = &tokens
		case limits.SecondsPerDay:
			continue
		}
		if *tightest == nil || s.Remaining() < (*tightest).Remaining {
			*tightest = &dialect.Allowance{Limit: s.Max, Remaining: s.Remaining(), Reset: s.Reset()}
		}
	}
	return dialect.RateHeader(d, requests, tokens, time.Now())
}
