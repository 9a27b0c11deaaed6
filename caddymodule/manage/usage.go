package manage

import (
	"cmp"
	"context"
	"encoding/csv"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Usage selects usage, and how to sum it up.
type Usage struct {
	From   string `json:"from" need:"filled" help:"The first day, like 2026-11-01, or hour, like 2026-11-01T15 (default 29 days before the last, or 23 hours)"`
	To     string `json:"to" need:"filled" help:"The last day or hour (default the present one)"`
	By     string `json:"by" need:"filled" help:"What to sum up by: key, model, user, day, hour, or several with commas (default \"day\")"`
	Format string `json:"format" need:"filled" flag:"-" help:"json or csv (default json)"`
}

// UsageSum is a sum of usage. Of hour, day, user, key and model, it has those that usage is summed up by.
type UsageSum struct {
	Hour string `json:"hour,omitempty" column:"HOUR"` // in UTC, like 2026-11-21T15
	// Day is in UTC. It is a month, like 2026-08, if the usage is no longer kept by day.
	Day string `json:"day,omitempty" column:"DAY"`
	// UserID is the owner of the key. It is absent if the key has no owner or was removed.
	UserID   string `json:"user_id,omitempty"`
	UserName string `json:"user_name,omitempty" column:"USER"`
	// KeyID is absent for the use of the console.
	KeyID   string `json:"key_id,omitempty" column:"KEY ID"`
	KeyName string `json:"key_name,omitempty" column:"KEY"`
	// Model is the name of the deployment. It is absent for requests that named no deployment of the account.
	Model string `json:"model,omitempty" column:"MODEL"`
	store.Usage
}

const (
	maxUsageDays  = 366
	maxUsageHours = 48
	usageDays     = 30 // by default
	maxUsageRows  = 100_000
	usageCSV      = "csv"
	usageFileName = "usage.csv"
)

// grouping is the set of columns that usage is summed up by.
type grouping struct{ hour, day, user, key, model bool }

// Usage returns sums of the account's usage, ordered by hour, day, user, key and model.
func (s *Service) Usage(ctx context.Context, u Usage) ([]UsageSum, error) {
	account, err := s.account(ctx)
	if err != nil {
		return nil, err
	}
	columns, err := u.grouping()
	if err != nil {
		return nil, err
	}
	from, to, err := s.usageRange(u, columns.hour)
	if err != nil {
		return nil, err
	}
	if s.cluster != nil && !s.cluster.Contact(s.cluster.Name()).Last.IsZero() {
		return nil, store.Errorf(store.ErrUnavailable,
			"the usage is in the store, which this gateway cannot reach now: try again, or use another gateway")
	}
	groups, maySee := make(map[usageGroup]*UsageSum), s.ownKeys(ctx, account)
	err = s.activity.EachUsage(ctx, account, from, to, s.unpublished(ctx, account), func(r store.UsageRow) error {
		if !maySee(r.Key) {
			return nil
		}
		g := s.groupOf(account, r, columns)
		sum := groups[g]
		if sum == nil {
			if len(groups) == maxUsageRows {
				return badRequest("the usage from %s to %s has more than %d rows: ask for fewer days, or with a shorter "+
					"list in %q", from, to, maxUsageRows, "by")
			}
			sum = &UsageSum{Hour: g.hour, Day: g.day, UserID: g.user, KeyID: g.key, Model: g.model}
			groups[g] = sum
		}
		if columns.key {
			sum.KeyName = cmp.Or(r.KeyName, sum.KeyName)
		}
		sum.Add(r.Usage)
		return nil
	})
	if err != nil {
		return nil, err
	}
	sums := make([]UsageSum, 0, len(groups))
	for _, sum := range groups {
		sums = append(sums, *sum)
	}
	s.nameSums(account, sums)
	slices.SortFunc(sums, func(a, b UsageSum) int {
		return cmp.Or(cmp.Compare(a.Hour, b.Hour), cmp.Compare(a.Day, b.Day), cmp.Compare(a.UserName, b.UserName),
			cmp.Compare(a.UserID, b.UserID), cmp.Compare(a.KeyName, b.KeyName), cmp.Compare(a.KeyID, b.KeyID),
			cmp.Compare(a.Model, b.Model))
	})
	return sums, nil
}

// usageGroup has the values of the columns that a sum is for.
type usageGroup struct{ hour, day, user, key, model string }

// groupOf returns the group of a row of usage.
func (s *Service) groupOf(account string, r store.UsageRow, columns grouping) (g usageGroup) {
	if columns.hour {
		g.hour = r.Day
	}
	if columns.day {
		g.day, _, _ = strings.Cut(r.Day, "T")
	}
	if columns.user {
		k, _ := s.store.Key(account, r.Key)
		g.user = k.Owner
	}
	if columns.key {
		g.key = r.Key
	}
	if columns.model {
		g.model = r.Deployment
	}
	return g
}

// unpublished returns the rows of usage that other gateways have not published, by gateway.
func (s *Service) unpublished(ctx context.Context, account string) map[string][]store.UsageRow {
	if s.cluster == nil {
		return nil
	}
	reports, _ := s.cluster.Reports(ctx, account)
	rows := make(map[string][]store.UsageRow, len(reports))
	for edge, r := range reports {
		rows[edge] = r.Usage
	}
	return rows
}

// nameSums sets the current names of keys and users. Removed keys keep their last names.
func (s *Service) nameSums(account string, sums []UsageSum) {
	for i := range sums {
		if k, ok := s.store.Key(account, sums[i].KeyID); ok {
			sums[i].KeyName = k.Name
		}
		if u, ok := s.store.User(sums[i].UserID); ok {
			sums[i].UserName = u.Name
		}
	}
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

// grouping returns the columns to sum up by.
func (u Usage) grouping() (b grouping, err error) {
	if u.By == "" {
		return grouping{day: true}, nil
	}
	columns := map[string]*bool{"hour": &b.hour, "day": &b.day, "user": &b.user, "key": &b.key, "model": &b.model}
	for name := range strings.SplitSeq(u.By, ",") {
		column := columns[name]
		if column == nil || *column {
			return b, badRequest("query parameter %q is %.40q; it must be key, model, user, day, hour, or several of them "+
				"with commas", "by", u.By)
		}
		*column = true
	}
	return b, nil
}

// usageAction answers with [Usage], in JSON or as a file.
var usageAction = func() action {
	a := call(ok, func(s *Service, ctx context.Context, u Usage) (any, error) {
		if u.Format != "" && u.Format != "json" && u.Format != usageCSV {
			return nil, badRequest("query parameter %q is %.40q; it must be json or csv", "format", u.Format)
		}
		sums, err := s.Usage(ctx, u)
		if err != nil || u.Format != usageCSV {
			return sums, err
		}
		return download{"text/csv; charset=utf-8", usageFileName, func(w io.Writer) error { return writeCSV(w, sums) }}, nil
	})
	a.Answer = reflect.TypeFor[[]UsageSum]()
	return a
}()

// writeCSV writes a table with all fields of the sums.
func writeCSV(w io.Writer, sums []UsageSum) error {
	out := csv.NewWriter(w)
	usage := reflect.TypeFor[store.Usage]()
	header := []string{"hour", "day", "user_id", "user_name", "key_id", "key_name", "model"}
	for field := range usage.Fields() {
		header = append(header, field.Tag.Get("json"))
	}
	if err := out.Write(header); err != nil {
		return err
	}
	for _, sum := range sums {
		row := []string{
			sum.Hour, sum.Day, cell(sum.UserID), cell(sum.UserName), cell(sum.KeyID), cell(sum.KeyName),
			cell(sum.Model),
		}
		for _, n := range reflect.ValueOf(sum.Usage).Fields() {
			row = append(row, strconv.FormatInt(n.Int(), 10))
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// cell returns s as a cell that no spreadsheet takes for a formula.
func cell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
