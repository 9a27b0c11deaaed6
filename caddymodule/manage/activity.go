package manage

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
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
	Status    string `json:"status" need:"filled" help:"Only requests with this outcome: ok, failed, refused, client"`
	Error     string `json:"error" need:"filled" help:"Only requests with this error code, class of the model server's error like out_of_memory, or stream_cut"`
	Since     string `json:"since" need:"filled" help:"Only requests since then: a time, or a duration like 24h"`
	Until     string `json:"until" need:"filled" help:"Only requests before this time"`
	Search    string `json:"search" need:"filled" help:"Only requests with this text in an id, a name or an error"`
	Before    string `json:"before" need:"filled" help:"The next page: the value \"next\" of the page before"`
	Limit     int    `json:"limit" help:"Max number of requests, up to 1000 (default 50)"`
	Format    string `json:"format" need:"filled" flag:"-" help:"json or csv (default json); csv has all requests, up to 100000"`
}

// Requests are the requests that [Activity] selects.
type Requests struct {
	activity.Found
	Edge string `json:"edge,omitempty"` // the name of this edge: the other edges of the cluster list their own requests
}

// defaultRequests is the default of [Activity.Limit].
const defaultRequests = 50

// Activity lists requests of the account, the newest first.
func (s *Service) Activity(ctx context.Context, a Activity) (Requests, error) {
	account, err := s.account(ctx)
	if err != nil {
		return Requests{}, err
	}
	q := activity.Query{
		Model: a.Model, Connector: a.Connector, Outcome: activity.Outcome(a.Status), Kind: a.Error, Text: a.Search,
		Before: a.Before, Limit: cmp.Or(a.Limit, defaultRequests),
	}
	if a.Limit < 0 || a.Limit > activity.MaxPage {
		return Requests{}, badRequest("limit is %d; it must be from 1 to %d", a.Limit, activity.MaxPage)
	}
	if !slices.Contains([]activity.Outcome{"", activity.Answered, activity.Failed, activity.Refused, activity.Client},
		q.Outcome) {
		return Requests{}, badRequest("status is %.40q; it must be ok, failed, refused or client", a.Status)
	}
	if max(len(a.Search), len(a.Error), len(a.Before)) > maxSearch {
		return Requests{}, badRequest("search, error and before can have at most %d bytes", maxSearch)
	}
	if q.From, err = s.instant("since", a.Since); err == nil {
		q.To, err = s.instant("until", a.Until)
	}
	if err != nil {
		return Requests{}, err
	}
	q.Keys = s.activityKeys(ctx, account, a)
	if c, ok := s.store.FindConnector(account, a.Connector); ok {
		q.Connector = c.ID
	}
	return s.findRequests(ctx, account, q)
}

// nextRequests returns the requests of a page, and turns a into the request for the next one, if there is one.
func nextRequests(a *Activity, page Requests) ([]activity.Request, bool) {
	a.Before, a.Limit = page.Next, activity.MaxPage
	return page.Requests, page.Next != ""
}

// maxSearch bounds what is looked for, in bytes.
const maxSearch = 512

// instant reads a time, or a duration before now.
func (s *Service) instant(name, value string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, value)
	if value == "" || err == nil {
		return at, nil
	}
	number, days := strings.CutSuffix(value, "d")
	if n, err := strconv.Atoi(number); days && err == nil {
		return s.now().AddDate(0, 0, -n), nil
	}
	age, err := time.ParseDuration(value)
	if at = s.now().Add(-age); err != nil {
		return at, badRequest("%s is %.40q; it must be a time like 2026-11-21T15:04:05Z, or a duration like 24h or 7d",
			name, value)
	}
	return at, nil
}

// activityKeys returns the keys whose requests the caller wants and may see; nil: all.
func (s *Service) activityKeys(ctx context.Context, account string, a Activity) []string {
	owner := s.owner(ctx)
	if owner == "" && a.Key == "" && a.User == "" {
		return nil
	}
	user := a.User
	if id, err := s.ownerID(account, user); err == nil {
		user = id
	}
	keys := []string{}
	for _, k := range s.store.Keys(account) {
		if (owner == "" || k.Owner == owner) && (user == "" || k.Owner == user) &&
			(a.Key == "" || a.Key == k.ID || a.Key == k.Name) {
			keys = append(keys, k.ID)
		}
	}
	if owner == "" && a.User == "" && len(keys) == 0 { // of the console, or removed
		keys = append(keys, a.Key)
	}
	return keys
}

// findRequests returns the requests of this gateway that a query selects.
func (s *Service) findRequests(ctx context.Context, account string, q activity.Query) (Requests, error) {
	q.Caller = CallerFrom(ctx).User
	own, err := s.activity.Find(ctx, account, q)
	switch {
	case errors.Is(err, store.ErrLimit) || ctx.Err() != nil: // a caller can cause many of them
		return Requests{}, faultf(store.ErrUnavailable, "%v", err)
	case err != nil:
		s.log.Warn("failed to read the activity", "account_id", account, "error", err)
		return Requests{}, faultf(store.ErrUnavailable, "the activity file cannot be read now; try again")
	}
	found := Requests{Found: own}
	if s.cluster != nil {
		found.Edge = s.cluster.Name()
	}
	for i := range found.Requests {
		if s.owner(ctx) != "" { // members see no connectors
			found.Requests[i].Connector = ""
		}
	}
	return found, nil
}

// Request returns a request of the account.
func (s *Service) Request(ctx context.Context, id string) (activity.Request, error) {
	account, err := s.account(ctx)
	if err != nil {
		return activity.Request{}, err
	}
	found, err := s.findRequests(ctx, account,
		activity.Query{ID: id, Limit: 1, Keys: s.activityKeys(ctx, account, Activity{})})
	if err == nil && len(found.Requests) == 0 {
		err = store.Errorf(store.ErrNotFound, "no request at this gateway has this id: it may be too old; of equal refusals "+
			"of a key, only the last 64 ids per minute are kept")
	}
	if err != nil {
		return activity.Request{}, err
	}
	return advise(found.Requests[0]), nil
}
