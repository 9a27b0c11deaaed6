package manage

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// People asks for the people behind a key.
type People struct {
	Key   string `json:"-" path:"record"`
	Since string `json:"since" need:"filled" help:"The first day in UTC, like 2026-11-01 (default 29 days ago; 62 days are kept)"`
}

// PersonUsage is the usage of a person behind a key.
type PersonUsage struct {
	Person       string `json:"person" column:"PERSON"` // as the client says; "others" has no name, or is one of too many
	Requests     int64  `json:"requests" column:"REQUESTS"`
	Errors       int64  `json:"errors" column:"ERRORS"`
	InputTokens  int64  `json:"input_tokens" column:"INPUT"`
	OutputTokens int64  `json:"output_tokens" column:"OUTPUT"`
	LastDay      string `json:"last_day" column:"LAST DAY"` // in UTC
}

// People returns the usage of the people behind a key, by id or name. Those with the most tokens come first.
func (s *Service) People(ctx context.Context, p People) ([]PersonUsage, error) {
	k, err := s.Key(ctx, p.Key)
	if err != nil {
		return nil, err
	}
	today := s.now().UTC()
	from, err := usageUnit{layout: time.DateOnly, example: "a day like 2026-11-21"}.parse("since",
		cmp.Or(p.Since, today.AddDate(0, 0, 1-usageDays).Format(time.DateOnly)))
	if err != nil {
		return nil, err
	}
	if oldest := today.AddDate(0, 0, -store.KeepPeople); from.Before(oldest) {
		from = oldest
	}
	people, index := []PersonUsage{}, make(map[string]int)
	err = s.activity.EachPerson(ctx, k.Account, k.ID, "", from.Format(time.DateOnly), today.Format(time.DateOnly),
		func(r store.UsageRow) error {
			i, ok := index[r.Person]
			if !ok {
				i, index[r.Person] = len(people), len(people)
				people = append(people, PersonUsage{Person: r.Person})
			}
			sum := &people[i]
			sum.Requests += r.Requests
			sum.Errors += r.Usage.Errors()
			sum.InputTokens += r.InputTokens
			sum.OutputTokens += r.OutputTokens
			sum.LastDay = max(sum.LastDay, r.Day)
			return nil
		})
	slices.SortFunc(people, func(a, b PersonUsage) int {
		return cmp.Or(cmp.Compare(b.InputTokens+b.OutputTokens, a.InputTokens+a.OutputTokens),
			cmp.Compare(a.Person, b.Person))
	})
	return people, err
}

// ForgetPerson names a person behind a key.
type ForgetPerson struct {
	Key    string `json:"-" path:"record"`
	Person string `json:"person" need:"required" help:"The name of the person, as the client sends it"`
}

// ForgetPerson makes a key, by id or name, forget a person. The audit log does not contain the name.
func (s *Service) ForgetPerson(ctx context.Context, f ForgetPerson) (Key, error) {
	return s.changeKey(ctx, "key.forget", f.Key, func(account, id string, check store.KeyCheck) (store.Key, error) {
		return s.store.ForgetPerson(ctx, account, id, strings.TrimSpace(f.Person), check)
	})
}
