package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/manage"
)

var usageCommand = command{
	use: "usage [--from DAY] [--to DAY] [--by COLUMNS]", short: "Shows requests and tokens by key, model, user and day",
	long: `Shows requests and tokens by key, model, user and day. Days are in UTC. The
default is the last 30 days by day; 366 days are the most. The user is the owner
of the key. By hour, usage is kept for 48 hours.

Usage is kept by day for at least 92 days, then by month for 5 years: a month
counts whole if one of its days is asked for. Keys and models that were removed
keep their usage. The column ESTIMATED is the part of INPUT and OUTPUT that the
model server did not count, as for answers that were cut.`,
	example: `  caddy gateway usage
  caddy gateway usage --from 2026-11-01 --to 2026-11-30 --by key,model
  caddy gateway usage --by hour,user
  caddy gateway usage --by key,model,day --csv >usage.csv`,
	account: true,
	flags: func(f *pflag.FlagSet) {
		f.String("from", "", "The first day, like 2026-11-01, or hour, like 2026-11-01T15 (default 29 days before the "+
			"last, or 23 hours)")
		f.String("to", "", "The last day or hour (default the present one)")
		f.String("by", "", `What to sum up by: key, model, user, day, hour, or several with commas (default "day")`)
		f.Bool("csv", false, "Print CSV with all columns instead of text")
	},
	run: func(in *invocation) error {
		if in.is("csv") {
			return in.printUsageCSV()
		}
		return operation(usageRequest, printUsage)(in)
	},
}

func usageRequest(in *invocation) (request, error) {
	r := in.request(http.MethodGet, "/usage")
	for _, name := range []string{"from", "to", "by"} {
		if in.Flags().Changed(name) {
			r = r.with(name, url.QueryEscape(in.text(name)))
		}
	}
	return r, nil
}

// printUsageCSV prints the usage as the gateway writes it.
func (in *invocation) printUsageCSV() error {
	r, err := usageRequest(in)
	if err != nil {
		return err
	}
	resp, err := in.send(r.with("format", "csv"))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(in.OutOrStdout(), resp.Body); err != nil {
		return fmt.Errorf("receiving the usage: %w", err)
	}
	return nil
}

// printUsage prints a table with a column for each of hour, day, user, key and model that the
// sums have, and the total.
func printUsage(in *invocation, sums []manage.UsageSum) {
	if len(sums) == 0 {
		in.printf("No requests on these days.\n")
		return
	}
	columns := []struct {
		title string
		value func(manage.UsageSum) string
	}{
		{"HOUR", func(u manage.UsageSum) string { return u.Hour }},
		{"DAY", func(u manage.UsageSum) string { return u.Day }},
		{"USER", func(u manage.UsageSum) string { return u.UserName }},
		{"KEY", func(u manage.UsageSum) string { return u.KeyName }},
		{"KEY ID", func(u manage.UsageSum) string { return u.KeyID }},
		{"MODEL", func(u manage.UsageSum) string { return u.Model }},
	}
	numbers := []string{"REQUESTS", "FAILED", "INPUT", "OUTPUT", "ESTIMATED"}
	var header []string
	used := columns[:0]
	for _, c := range columns {
		if slices.ContainsFunc(sums, func(u manage.UsageSum) bool { return c.value(u) != "" }) {
			used, header = append(used, c), append(header, c.title)
		}
	}
	rows := [][]string{append(header, numbers...)}
	var total manage.UsageSum
	add := func(u manage.UsageSum, names []string) {
		for _, n := range []int64{u.Requests, u.Errors(), u.InputTokens, u.OutputTokens, u.EstimatedTokens} {
			names = append(names, strconv.FormatInt(n, 10))
		}
		rows = append(rows, names)
	}
	for _, u := range sums {
		names := make([]string, 0, len(header)+len(numbers))
		for _, c := range used {
			names = append(names, c.value(u))
		}
		add(u, names)
		total.Add(u.Usage)
	}
	if len(used) > 0 && len(sums) > 1 {
		add(total, append([]string{"total"}, make([]string, len(used)-1)...))
	}
	in.err = printTable(in.OutOrStdout(), rows)
}
