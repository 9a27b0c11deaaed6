package serve

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
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
	crossed func(account string, c limits.Crossing)
}

// Crossed implements limits.Source. Events do not name people.
func (s limitSource) Crossed(account string, c limits.Crossing) {
	if c.Of != limits.OfPerson {
		s.crossed(account, c)
	}
}

// LimitsOf implements limits.Source.
func (s limitSource) LimitsOf(account string, of limits.Subject) limits.UsageLimits {
	return s.store.UsageLimits(account, of)
}

// SumsOf implements limits.Source.
func (s limitSource) SumsOf(ctx context.Context, account string, of limits.Subject) (day, month limits.Sums,
	err error,
) {
	key := ""
	// Keys count for a group by their groups of today. So a key that leaves one takes its usage along.
	counts := func(key string) bool { return of.Of != limits.OfGroup || slices.Contains(s.store.GroupsOf(key), of) }
	switch of.Of {
	case limits.OfKey:
		key = of.ID
	case limits.OfPerson:
		key, name := of.Person()
		today := time.Now().UTC().Format(time.DateOnly)
		err = s.log.EachPerson(ctx, account, key, name, today, today, func(r store.UsageRow) error {
			day.Add(r.Sums())
			return nil
		})
		return day, month, err
	}
	to := time.Now().UTC()
	from := to.AddDate(0, 0, 1-to.Day())
	today := to.Format(time.DateOnly)
	err = s.log.EachUsage(ctx, account, key, from.Format(time.DateOnly), today, func(r store.UsageRow) error {
		switch {
		case !counts(r.Key):
			return nil
		case r.Day == today:
			day.Add(r.Sums())
		}
		month.Add(r.Sums())
		return nil
	})
	return day, month, err
}

// appendLevels appends the subjects whose limits the request must obey, from the account over these groups to the
// person.
func (ex *Exchange) appendLevels(levels, groups []limits.Subject) []limits.Subject {
	levels = limits.AppendLevels(levels, ex.Account, groups, ex.Key.ID())
	if ex.person != "" && ex.backend.Store.UsageLimits(ex.Account, ex.subject) != (limits.UsageLimits{}) {
		levels = append(levels, ex.subject)
	}
	return levels
}

// lowest returns the lowest limit of any level, 0 if there is none. limited reports whether a request must be admitted.
func (ex *Exchange) lowest(of func(limits.UsageLimits) int) (lowest int, limited bool) {
	var usual [limits.UsualLevels]limits.Subject
	_, ofGroups := ex.Key.GroupLimits()
	lowest, limited = of(ofGroups), ofGroups.Any()
	for _, level := range ex.appendLevels(usual[:0], nil) {
		l := ex.backend.Store.UsageLimits(ex.Account, level)
		lowest, limited = dialect.Lowest(lowest, of(l)), limited || l.Any()
	}
	return lowest, limited
}

// maxOutput returns the max output tokens, for [Exchange.lowest].
func maxOutput(l limits.UsageLimits) int { return l.MaxOutputTokens }

// enterLimits waits until the limits of all levels allow the request, once for all attempts, and reports whether it had
// to wait.
func (rt *Router) enterLimits(ctx context.Context, m *modelRequest) (waited bool, err error) {
	ex := m.exchange
	if m.judge || ex.idle() {
		return false, nil
	}
	n, limited := ex.lowest(maxOutput)
	if n > 0 {
		m.call.LimitOutput(int64(n))
	}
	if ex.release != nil || !limited {
		return false, nil
	}
	cost := limits.Cost{Input: m.size / dialect.BytesPerToken, Output: m.call.OutputLimit()}
	if media := m.media(); media != nil && media.Unit() != "" {
		cost.Input = 0 // the size of a file says nothing about tokens
	}
	start := time.Now()
	var usual [limits.UsualLevels]limits.Subject
	groups, _ := ex.Key.GroupLimits()
	permit, err := ex.backend.Limiter.Enter(ctx, limits.Request{
		Account: ex.Account, Levels: ex.appendLevels(usual[:0], groups), Client: ex.client(), Cost: cost,
		Length: cmp.Or(rt.QueueLength, turns.DefaultLength), Queue: cmp.Or(rt.QueueWait, turns.DefaultWait),
	})
	if refusal, ok := errors.AsType[*limits.Refusal](err); ok {
		rt.Observer.Limited(refusal.State)
		ex.Reason = refusal.Of + "_" + refusal.Limit
		limit := ex.limitOf(refusal)
		ex.limitReached = limit.Subject("The") + " has reached its limit of " + limit.Amount() + "."
		m.answer.header(rateHeader(ex.Operation.Dialect, refusal.States))
	}
	if err != nil {
		return false, ex.limitError(err)
	}
	ex.release = permit.Settle
	if permit.Waited() {
		ex.span.limited(time.Since(start))
	}
	m.answer.header(rateHeader(ex.Operation.Dialect, permit.States()))
	return permit.Waited(), nil
}

// limitError returns the client's error for one of [limits.Limiter.Enter].
func (ex *Exchange) limitError(err error) error {
	refusal, ok := errors.AsType[*limits.Refusal](err)
	switch {
	case ok:
		return dialect.LimitReached(ex.limitOf(refusal))
	case errors.Is(err, fair.ErrFull):
		return dialect.QueueFull(ex.Deployment)
	case errors.Is(err, fair.ErrTimeout):
		return dialect.QueueTimeout(ex.Deployment)
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
func (ex *Exchange) limitOf(r *limits.Refusal) dialect.Limit {
	return dialect.Limit{
		Name: r.Limit, Of: r.Of, Group: ex.groupName(r.Subject), Max: r.Max, Total: r.Total, Used: r.Used, Quota: r.Quota,
		Wait: r.Wait(), Reset: time.Now().Add(r.Reset()).UTC(),
	}
}

// groupName returns the name of a group, "" for other subjects.
func (ex *Exchange) groupName(of limits.Subject) string {
	if of.Of != limits.OfGroup {
		return ""
	}
	return ex.backend.Store.GroupName(of.ID)
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
