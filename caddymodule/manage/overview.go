package manage

import (
	"context"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
)

// maxUsageDays bounds how many days [Service.Usage] reports on.
const maxUsageDays = 366

// Checklist is how far an account is on the way to its first request.
type Checklist struct {
	Connector bool `json:"connector"` // there is one
	Model     bool `json:"model"`     // a deployment is registered
	Key       bool `json:"key"`       // there is one that works
	Request   bool `json:"request"`   // a key was used
}

// Checklist reports how far the account is.
func (s *Service) Checklist(ctx context.Context) (Checklist, error) {
	account, err := s.account(ctx)
	if err != nil {
		return Checklist{}, err
	}
	c := Checklist{
		Connector: len(s.store.Connectors(account)) > 0,
		Model:     len(s.store.Deployments(account)) > 0,
		Request:   len(s.activity.Recent(account)) > 0,
	}
	for _, k := range s.store.Keys(account) {
		c.Key = c.Key || k.RevokedAt == nil
		c.Request = c.Request || k.LastUsedAt != nil
	}
	return c, nil
}

// Activity lists the last requests of the account, the newest first.
func (s *Service) Activity(ctx context.Context) ([]activity.Request, error) {
	return list(ctx, s, s.activity.Recent, as)
}

// Usage sums up what the account used on each of the last days, today's being
// the last.
func (s *Service) Usage(ctx context.Context, days int) ([]store.UsageDay, error) {
	account, err := s.account(ctx)
	if err != nil {
		return nil, err
	}
	if days < 1 || days > maxUsageDays {
		return nil, faultf(store.ErrInvalid, "the number of days is %d; it can be 1 to %d", days, maxUsageDays)
	}
	return s.activity.Days(ctx, account, days)
}
