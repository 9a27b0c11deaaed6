package cli

import (
	"slices"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/manage"
)

var usageCommand = command{
	use: "usage [--from DAY] [--to DAY] [--by COLUMNS] [--key KEY] [--user USER] [--model MODEL]", operation: "GET /usage",
	long: `Shows requests and tokens by key, model, user and day. Days are in UTC. The
default is the last 30 days by day; the maximum is 366 days. The user is the owner
of the key. Usage is kept by hour for 7 days, and by day for 400 days. Keys and models
that were removed keep their usage.

FAILED are requests that the gateway, a connector or a model server has failed; REFUSED
are those that a limit, the queue or the key did not allow. The column ESTIMATED is the
part of INPUT and OUTPUT that the model server did not count, as in answers that broke
off. CSV and JSON have the times, too: p50 and p95 of the time to the first token and
of the wait, p50 and p5 of the tokens in a second.`,
	example: `  caddy gateway usage
  caddy gateway usage --from 2026-11-01 --to 2026-11-30 --by key,model
  caddy gateway usage --by hour,user
  caddy gateway usage --user anna --by key
  caddy gateway usage --by key,model,day --csv >usage.csv`,
	flags: func(f *pflag.FlagSet) { f.Bool("csv", false, "Print CSV with all columns instead of text") },
	print: show(printUsage),
	run: func(in *invocation) error {
		if !in.is("csv") {
			return in.perform()
		}
		r, err := in.request()
		if err != nil {
			return err
		}
		r.set("format", "csv")
		return in.download(r, in.OutOrStdout(), "the usage")
	},
}

// printUsage prints a table with a column for each of hour, day, user, key and model that the
// sums have, and the total.
func printUsage(in *invocation, sums []manage.UsageSum) {
	if len(sums) == 0 {
		in.printf("No requests on these days.\n")
		return
	}
	var total manage.UsageSum
	for _, sum := range sums {
		total.Add(sum.Usage)
	}
	l := list[manage.UsageSum]{cells: cells[manage.UsageSum]{
		"FAILED": func(_ *invocation, u manage.UsageSum) string { return strconv.FormatInt(u.Outages(), 10) },
	}}
	titles := slices.DeleteFunc([]string{"HOUR", "DAY", "USER", "KEY", "KEY ID", "MODEL"}, func(title string) bool {
		return !slices.ContainsFunc(sums, func(u manage.UsageSum) bool { return l.row(in, []string{title}, u)[0] != "" })
	})
	names := len(titles)
	titles = append(titles, "REQUESTS", "FAILED", "REFUSED", "INPUT", "OUTPUT", "ESTIMATED")
	rows := [][]string{titles}
	for _, sum := range sums {
		rows = append(rows, l.row(in, titles, sum))
	}
	if names > 0 && len(sums) > 1 {
		rows = append(rows, l.row(in, titles, total))
		rows[len(rows)-1][0] = "total"
	}
	in.printTable(rows)
}
