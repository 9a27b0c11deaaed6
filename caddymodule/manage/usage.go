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
	From   string `json:"from" need:"filled"`   // first day in UTC, like 2026-11-21; "": 29 days before the last
	To     string `json:"to" need:"filled"`     // last day; "": today
	By     string `json:"by" need:"filled"`     // key, model, day, or several with commas; "": day
	Format string `json:"format" need:"filled"` // json or csv; "": json
}

// UsageSum is a sum over usage. It has those of day, key and model that it is a sum by.
type UsageSum struct {
	// Day is in UTC. It is a month, like 2026-08, if the usage is no longer kept by day.
	Day     string `json:"day,omitempty"`
	KeyID   string `json:"key_id,omitempty"`
	KeyName string `json:"key_name,omitempty"`
	// Model is the name of the deployment. Requests that named none of the account have none.
	Model string `json:"model,omitempty"`
	store.Usage
}

const (
	maxUsageDays  = 366
	usageDays     = 30 // by default
	maxUsageRows  = 100_000
	usageCSV      = "csv"
	usageFileName = "usage.csv"
)

// by is the set of columns that usage is summed up by.
type by struct{ day, key, model bool }

// Usage returns sums of the account's usage, ordered by day, key and model.
func (s *Service) Usage(ctx context.Context, u Usage) ([]UsageSum, error) {
	account, err := s.account(ctx)
	if err != nil {
		return nil, err
	}
	from, to, err := s.usageRange(u)
	if err != nil {
		return nil, err
	}
	by, err := u.by()
	if err != nil {
		return nil, err
	}
	type group struct{ day, key, model string }
	groups, mayKey := make(map[group]*UsageSum), s.ownKeys(ctx, account)
	err = s.activity.EachUsage(ctx, account, from, to, s.unpublished(ctx, account), func(r store.UsageRow) error {
		var g group
		if !mayKey(r.Key) {
			return nil
		}
		if by.day {
			g.day = r.Day
		}
		if by.key {
			g.key = r.Key
		}
		if by.model {
			g.model = r.Deployment
		}
		sum := groups[g]
		if sum == nil {
			if len(groups) == maxUsageRows {
				return badRequest("the usage from %s to %s has more than %d rows: ask for fewer days, or with a shorter list in %q", from, to, maxUsageRows, "by")
			}
			sum = &UsageSum{Day: g.day, KeyID: g.key, Model: g.model}
			groups[g] = sum
		}
		if by.key {
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
	s.nameKeys(account, by, sums)
	slices.SortFunc(sums, func(a, b UsageSum) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.KeyName, b.KeyName), cmp.Compare(a.KeyID, b.KeyID), cmp.Compare(a.Model, b.Model))
	})
	return sums, nil
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

// nameKeys sets the current names of keys. Removed ones keep those they had.
func (s *Service) nameKeys(account string, by by, sums []UsageSum) {
	if !by.key {
		return
	}
	for i := range sums {
		if k, ok := s.store.Key(account, sums[i].KeyID); ok {
			sums[i].KeyName = k.Name
		}
	}
}

// usageRange returns the first and the last day.
func (s *Service) usageRange(u Usage) (from, to string, err error) {
	day := func(name, value string) (time.Time, error) {
		t, err := time.Parse(time.DateOnly, value)
		if err != nil {
			return t, badRequest("query parameter %q is %.40q; it must be a day like 2026-11-21", name, value)
		}
		return t, nil
	}
	last, err := day("to", cmp.Or(u.To, s.now().UTC().Format(time.DateOnly)))
	if err != nil {
		return "", "", err
	}
	first, err := day("from", cmp.Or(u.From, last.AddDate(0, 0, 1-usageDays).Format(time.DateOnly)))
	if err != nil {
		return "", "", err
	}
	if first.After(last) || first.Before(last.AddDate(0, 0, 1-maxUsageDays)) {
		return "", "", badRequest("the usage from %s to %s is not 1 to %d days", first.Format(time.DateOnly), last.Format(time.DateOnly), maxUsageDays)
	}
	return first.Format(time.DateOnly), last.Format(time.DateOnly), nil
}

// by returns the columns to sum up by.
func (u Usage) by() (b by, err error) {
	if u.By == "" {
		return by{day: true}, nil
	}
	columns := map[string]*bool{"day": &b.day, "key": &b.key, "model": &b.model}
	for name := range strings.SplitSeq(u.By, ",") {
		column := columns[name]
		if column == nil || *column {
			return b, badRequest("query parameter %q is %.40q; it must be key, model, day, or several of them with commas", "by", u.By)
		}
		*column = true
	}
	return b, nil
}

// usageRoute returns the operation that answers with [Usage], in JSON or as a file.
func (s *Service) usageRoute(status int) operation {
	o := with(status, func(ctx context.Context, u Usage) (any, error) {
		if u.Format != "" && u.Format != "json" && u.Format != usageCSV {
			return nil, badRequest("query parameter %q is %.40q; it must be json or csv", "format", u.Format)
		}
		sums, err := s.Usage(ctx, u)
		if err != nil || u.Format != usageCSV {
			return sums, err
		}
		return download{"text/csv; charset=utf-8", usageFileName, func(w io.Writer) error { return writeCSV(w, sums) }}, nil
	})
	o.answer = reflect.TypeFor[[]UsageSum]()
	return o
}

// writeCSV writes a table with all fields of the sums.
func writeCSV(w io.Writer, sums []UsageSum) error {
	out := csv.NewWriter(w)
	usage := reflect.TypeFor[store.Usage]()
	header := []string{"day", "key_id", "key_name", "model"}
	for field := range usage.Fields() {
		header = append(header, field.Tag.Get("json"))
	}
	if err := out.Write(header); err != nil {
		return err
	}
	for _, sum := range sums {
		row := []string{sum.Day, cell(sum.KeyID), cell(sum.KeyName), cell(sum.Model)}
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

// cell returns a text that a spreadsheet does not take for a formula.
func cell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
