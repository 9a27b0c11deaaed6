package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/manage"
)

var activityCommand = command{
	use:       "activity [ID] [--failed] [--key KEY] [--model MODEL] [--since TIME] [--follow | --by-code]",
	operation: "GET /activity",
	long: `Lists requests without prompts and answers, the newest last, or shows all about one,
as JSON. --follow lists them when they end, and begins with the last hour or --since.
It looks at the newest thousand: of a busy gateway it may miss those that take long.
--by-code counts the errors among the newest thousand.`,
	example: `  caddy gateway activity --failed --since 24h
  caddy gateway activity --since 24h --by-code
  caddy gateway activity --key laptop --follow
  caddy gateway activity req_06b3kz9v6dfx7fbv7wq7m5r2qm`,
	flags: func(f *pflag.FlagSet) {
		f.BoolFunc("failed", "The same as --status failed", func(string) error { return f.Set("status", "failed") })
		f.Bool("by-code", false, "Count those that failed or were refused, by the code of their error")
		f.BoolP("follow", "f", false, "Wait for more requests, until Ctrl-C")
	},
	run: func(in *invocation) error {
		filtered := slices.ContainsFunc(in.command.fields(), func(f field) bool { return in.Flags().Changed(f.Flag) })
		switch {
		case in.arg != "" && (filtered || in.is("follow")):
			return up.Usagef("an ID names one request: leave out --follow and the flags that select from the list")
		case in.arg != "":
			in.command = &command{operation: "GET /activity/{id}"}
			_ = in.Flags().Set("json", "true")
		case in.is("follow"):
			return in.follow()
		case in.is("by-code") && !in.Flags().Changed("limit"):
			_ = in.Flags().Set("limit", "1000")
		}
		return in.perform()
	},
	print: show(printRequests),
}

// errorRows returns how many requests have ended with each code, with the newest of them.
func errorRows(in *invocation, page manage.Requests) [][]string {
	counts, newest := map[string]int{}, []activity.Request{}
	for _, r := range page.Requests {
		if r.ErrorClass != "" {
			if counts[r.ErrorCode] == 0 {
				newest = append(newest, r)
			}
			counts[r.ErrorCode] += r.Count()
		}
	}
	slices.SortStableFunc(newest, func(a, b activity.Request) int { return counts[b.ErrorCode] - counts[a.ErrorCode] })
	rows := [][]string{{"CODE", "REQUESTS", "LAST " + in.env.timeTitle(), "ERROR"}}
	for _, r := range newest {
		n := strconv.Itoa(counts[r.ErrorCode])
		rows = append(rows, []string{r.ErrorCode, n, in.env.moment(r.Time), cmp.Or(r.Reason, r.Error)})
	}
	return rows
}

// printRequests prints a row for each request, the newest last.
func printRequests(in *invocation, page manage.Requests) {
	seconds := func(millis float64) string { return strings.TrimPrefix(fmt.Sprintf("%.2fs", millis/1000), "0.00s") }
	titles := ", KEY, MODEL, STATUS, WAIT, FIRST TOKEN, DURATION, ID, TOKENS OR ERROR"
	rows := [][]string{strings.Split(in.env.timeTitle()+titles, ", ")}
	for _, r := range slices.Backward(page.Requests) {
		result := fmt.Sprintf("%d in, %d out", r.InputTokens, r.OutputTokens)
		if r.Amount > 0 {
			result = fmt.Sprintf("%.6g %s", r.Amount, r.Unit)
		}
		if r.ErrorClass != "" {
			result = cmp.Or(r.Reason, r.Error, r.ErrorCode)
		}
		if r.Refusals > 1 {
			result = fmt.Sprintf("%d times: %s", r.Refusals, result)
		}
		rows = append(rows, []string{
			in.env.moment(r.Time),
			map[bool]string{true: activity.ConsoleKey, false: cmp.Or(r.KeyName, r.KeyID)}[r.FromConsole()],
			cmp.Or(r.Deployment, r.Model), fmt.Sprintf("%s %d", r.Outcome(), r.Status),
			seconds(r.WaitMillis), seconds(r.FirstTokenMillis), seconds(r.DurationMillis), r.ID, result,
		})
	}
	if in.is("by-code") {
		rows = errorRows(in, page)
	}
	in.printTable(rows)
	if page.Edge != "" {
		in.warnf("These requests came to %s. Each gateway lists its own.\n", page.Edge)
	}
	if page.Next != "" {
		in.warnf("For older ones, add --before %s\n", page.Next)
	}
}

// follow prints requests when they have ended. It asks for those of an hour: a request has the time of its start.
func (in *invocation) follow() error {
	for flag, value := range map[string]string{"since": "1h", "limit": "1000"} {
		if !in.Flags().Changed(flag) {
			_ = in.Flags().Set(flag, value)
		}
	}
	r, err := in.request()
	for last := []activity.Request{}; err == nil; time.Sleep(in.env.poll) {
		var page manage.Requests
		if err = in.do(r, &page); err != nil {
			return err
		}
		all := len(page.Requests)
		page.Requests = slices.DeleteFunc(page.Requests, func(r activity.Request) bool {
			return slices.ContainsFunc(last, func(l activity.Request) bool { return l.ID == r.ID })
		})
		if len(page.Requests) < all {
			page.Next = "" // it is older than those of the answer before
		}
		switch {
		case len(page.Requests) > 0 && in.is("json"):
			err = printJSON(in.OutOrStdout(), page)
		case len(page.Requests) > 0:
			printRequests(in, page)
		}
		last = slices.Concat(page.Requests, last[:min(len(last), 4000)])
	}
	return err
}
