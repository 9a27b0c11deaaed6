package manage

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Usage selects usage, and how to sum it up.
type Usage struct {
	From   string `json:"from" need:"filled" help:"The first day, like 2026-11-01, or hour, like 2026-11-01T15 (default 29 days before the last, or 23 hours)"`
	To     string `json:"to" need:"filled" help:"The last day or hour (default the current one)"`
	By     string `json:"by" need:"filled" help:"What to group by: key, model, user, day, hour, or several separated by commas (default \"day\")"`
	Key    string `json:"key" need:"filled" help:"Only requests with this key, by id or name, or \"console\""`
	User   string `json:"user" need:"filled" help:"Only requests with the keys of this user, by id or name"`
	Model  string `json:"model" need:"filled" help:"Only requests for this model"`
	Format string `json:"format" need:"filled" flag:"-" help:"json or csv (default json)"`
}

// UsageSum is a sum of usage. Of hour, day, user, key and model, those are set that usage is summed up by.
type UsageSum struct {
	Hour string `json:"hour,omitempty" column:"HOUR"` // in UTC, like 2026-11-21T15
	Day  string `json:"day,omitempty" column:"DAY"`   // in UTC
	// UserID is the owner of the key. It is absent if the key has no owner or was removed.
	UserID   string `json:"user_id,omitempty"`
	UserName string `json:"user_name,omitempty" column:"USER"`
	// KeyID is absent for the use of the console.
	KeyID   string `json:"key_id,omitempty" column:"KEY ID"`
	KeyName string `json:"key_name,omitempty" column:"KEY"`
	// Model is the name of the deployment. It is absent for requests that named no deployment of the account.
	Model string `json:"model,omitempty" column:"MODEL"`
	store.Usage
	store.Percentiles
}

const (
	maxUsageDays  = 366
	maxUsageHours = 168
	usageDays     = 30 // by default
)

// usageColumns are the columns that usage can be summed up by.
var usageColumns = []string{"hour", "day", "user", "key", "model"}

const hourColumn = 0 // index of "hour"

// usageGroup contains the values of usageColumns that a sum is for.
type usageGroup [5]string

// Usage returns sums of the account's usage, ordered by hour, day, user, key and model.
func (s *Service) Usage(ctx context.Context, u Usage) ([]UsageSum, error) {
	account, err := s.account(ctx)
	if err != nil {
		return nil, err
	}
	by, err := u.columns()
	if err != nil {
		return nil, err
	}
	from, to, err := s.usageRange(u, slices.Contains(by, hourColumn))
	if err != nil {
		return nil, err
	}
	selects, err := s.usageFilter(ctx, account, u)
	if err != nil {
		return nil, err
	}
	if err := s.usageInReach(); err != nil {
		return nil, err
	}
	groups := make(map[usageGroup]*UsageSum)
	err = s.activity.EachUsage(ctx, account, "", from, to, func(r store.UsageRow) error {
		k, _ := s.store.Key(account, r.Key)
		if !selects(r, k.Owner) {
			return nil
		}
		day, _, _ := strings.Cut(r.Day, "T")
		row, g := usageGroup{r.Day, day, k.Owner, r.Key, r.Deployment}, usageGroup{}
		for _, i := range by {
			g[i] = row[i]
		}
		sum := groups[g]
		if sum == nil {
			if len(groups) == maxRows {
				return badRequest("the usage from %s to %s has more than %d rows: choose fewer days, or fewer "+
					"values in %q", from, to, maxRows, "by")
			}
			sum = &UsageSum{Hour: g[0], Day: g[1], UserID: g[2], KeyID: g[3], Model: g[4]}
			groups[g] = sum
		}
		if sum.KeyID != "" {
			sum.KeyName = cmp.Or(r.KeyName, sum.KeyName)
		}
		sum.Add(r.Usage)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.sorted(account, groups), nil
}

// usageInReach fails if this gateway cannot read the usage now.
func (s *Service) usageInReach() error {
	if s.cluster != nil && !s.cluster.Contact(s.cluster.Name()).Last.IsZero() {
		return store.Errorf(store.ErrUnavailable,
			"the usage is in the store, which this gateway cannot reach now: try again, or use another gateway")
	}
	return nil
}

// usageFilter returns a function that reports whether a query selects a row of a key of this owner. Removed keys are
// found by their ids only.
func (s *Service) usageFilter(
	ctx context.Context, account string, u Usage,
) (selects func(r store.UsageRow, owner string) bool, err error) {
	maySee, user := s.ownKeys(ctx, account), ""
	if u.User != "" {
		if user, err = s.ownerID(account, u.User); err != nil {
			return nil, err
		}
	}
	if u.Key != "" && u.Key != activity.ConsoleKey {
		k, err := s.Key(ctx, u.Key)
		if err != nil && !strings.HasPrefix(u.Key, "key_") {
			return nil, err
		}
		u.Key = cmp.Or(k.ID, u.Key)
	}
	return func(r store.UsageRow, owner string) bool {
		return maySee(r.Key) && (u.Key == "" || u.Key == cmp.Or(r.Key, activity.ConsoleKey)) &&
			(u.User == "" || user == owner) && (u.Model == "" || u.Model == r.Deployment)
	}, nil
}

// sorted returns sums in order, with their percentiles and the current names of keys and users. Removed keys keep their
// last names.
func (s *Service) sorted(account string, groups map[usageGroup]*UsageSum) []UsageSum {
	sums := make([]UsageSum, 0, len(groups))
	for _, sum := range groups {
		if k, ok := s.store.Key(account, sum.KeyID); ok {
			sum.KeyName = k.Name
		}
		sum.UserName = s.ownerName(account, sum.UserID)
		sum.Percentiles = sum.Usage.Percentiles()
		sums = append(sums, *sum)
	}
	slices.SortFunc(sums, func(a, b UsageSum) int {
		return cmp.Or(cmp.Compare(a.Hour, b.Hour), cmp.Compare(a.Day, b.Day), cmp.Compare(a.UserName, b.UserName),
			cmp.Compare(a.UserID, b.UserID), cmp.Compare(a.KeyName, b.KeyName), cmp.Compare(a.KeyID, b.KeyID),
			cmp.Compare(a.Model, b.Model))
	})
	return sums
}

// usageRange returns the first and the last day, or hour.
func (s *Service) usageRange(u Usage, hourly bool) (from, to string, err error) {
	unit := usageUnit{time.DateOnly, 24 * time.Hour, maxUsageDays, usageDays, "days", "a day like 2026-11-21"}
	if hourly || len(u.From) == len(store.HourOnly) || len(u.To) == len(store.HourOnly) {
		unit = usageUnit{store.HourOnly, time.Hour, maxUsageHours, 24, "hours", "an hour like 2026-11-21T15"}
	}
	last, err := unit.parse("to", cmp.Or(u.To, s.now().UTC().Format(unit.layout)))
	if err != nil {
		return "", "", err
	}
	first, err := unit.parse("from", cmp.Or(u.From, last.Add(unit.size*time.Duration(1-unit.usual)).Format(unit.layout)))
	if err != nil {
		return "", "", err
	}
	from, to = first.Format(unit.layout), last.Format(unit.layout)
	if first.After(last) || first.Before(last.Add(unit.size*time.Duration(1-unit.max))) {
		return "", "", badRequest("the usage from %s to %s is not 1 to %d %s", from, to, unit.max, unit.name)
	}
	return from, to, nil
}

// usageUnit is the unit of time of a query for usage.
type usageUnit struct {
	layout        string
	size          time.Duration
	max, usual    int
	name, example string
}

func (u usageUnit) parse(name, value string) (time.Time, error) {
	t, err := time.Parse(u.layout, value)
	if err != nil {
		return t, badRequest("query parameter %q is %.40q; it must be %s", name, value, u.example)
	}
	return t, nil
}

// columns returns the indexes of the columns to sum up by.
func (u Usage) columns() (by []int, err error) {
	for name := range strings.SplitSeq(cmp.Or(u.By, "day"), ",") {
		column := slices.Index(usageColumns, name)
		if column < 0 || slices.Contains(by, column) {
			return nil, badRequest("query parameter %q is %.40q; it must be key, model, user, day, hour, or several of these, "+
				"separated by commas", "by", u.By)
		}
		by = append(by, column)
	}
	return by, nil
}
