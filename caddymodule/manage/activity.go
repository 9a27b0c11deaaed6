package manage

import (
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Activity selects requests. The newest come first.
type Activity struct {
	Key       string `json:"key" need:"filled" help:"Only requests with this key, by id or name, or \"console\""`
	User      string `json:"user" need:"filled" help:"Only requests with the keys of this user, by id or name"`
	Model     string `json:"model" need:"filled" help:"Only requests for this model"`
	Connector string `json:"connector" need:"filled" help:"Only requests through this connector, by id or name"`
	Status    string `json:"status" need:"filled" help:"Only requests that ended so: ok, failed, refused, client"`
	Since     string `json:"since" need:"filled" help:"Only requests since then: a time, or a duration like 24h"`
	Until     string `json:"until" need:"filled" help:"Only requests before this time"`
	Search    string `json:"search" need:"filled" help:"Only requests with this part of an id, a name or an error"`
	Before    string `json:"before" need:"filled" help:"The next page: the value \"next\" of the page before"`
	Limit     int    `json:"limit" help:"At most so many requests, up to 1000 (default 50)"`
}

// Requests are the requests that [Activity] selects.
type Requests struct {
	activity.Found
	Partial bool     `json:"partial,omitempty"` // other gateways do not answer: their requests are missing
	Silent  []string `json:"silent,omitempty"`  // their names, if the caller may see edges
}

// Activity lists requests of the account, the newest first.
func (s *Service) Activity(ctx context.Context, a Activity) (Requests, error) {
	recent, err := s.Recent(ctx)
	if err != nil {
		return Requests{}, err
	}
	q := activity.Query{
		Model: a.Model, Connector: a.Connector, Outcome: activity.Outcome(a.Status), Text: a.Search, Before: a.Before,
	}
	if a.Key != "" {
		q.Keys = []string{a.Key}
	}
	if age, err := time.ParseDuration(a.Since); err == nil {
		q.From = s.now().Add(-age)
	}
	found := Requests{Partial: recent.Partial, Silent: recent.Silent}
	for _, r := range recent.Requests {
		if q.Matches(&r) {
			found.Requests = append(found.Requests, r)
		}
	}
	return found, nil
}

// Request returns a request of the account.
func (s *Service) Request(ctx context.Context, id string) (activity.Request, error) {
	recent, err := s.Recent(ctx)
	if err != nil {
		return activity.Request{}, err
	}
	for _, r := range recent.Requests {
		if r.ID == id {
			return advise(r), nil
		}
	}
	return activity.Request{}, store.Errorf(store.ErrNotFound, "no request has the id %.40q; older ones are no longer kept", id)
}
