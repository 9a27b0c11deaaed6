package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/connector/wait"
)

var activityCommand = command{
	use: "activity [ID] [--failed] [--key KEY] [--model MODEL] [--since TIME] [--follow]", operation: "GET /activity",
	long: `Lists requests, the newest last, or shows all about the one with an id. Prompts and
answers are not stored. --follow begins with the last hour, unless --since is given,
and lists requests when they end.`,
	example: `  caddy gateway activity
  caddy gateway activity --failed --since 24h
  caddy gateway activity --key laptop --follow
  caddy gateway activity req_06b3kz9v6dfx7fbv7wq7m5r2qm`,
	flags: func(f *pflag.FlagSet) {
		f.Bool("failed", false, "Only requests that failed: the same as --status failed")
		f.BoolP("follow", "f", false, "Wait for more requests, until Ctrl-C")
	},
	prepare: func(in *invocation, r *request) error {
		if in.is("failed") {
			r.set("status", activity.Failed)
		}
		if in.is("follow") && in.text("since") == "" {
			r.set("since", "1h")
		}
		if in.is("follow") && !in.Flags().Changed("limit") {
			r.set("limit", 1000)
		}
		return nil
	},
	run: func(in *invocation) error {
		if in.arg != "" {
			in.command = &command{operation: "GET /activity/{id}", print: printRequest}
		} else if in.is("follow") {
			return in.follow()
		}
		return in.perform()
	},
	print: show(printRequests),
}

var requestColumns = strings.Split("TIME, KEY, MODEL, STATUS, WAIT, FIRST TOKEN, DURATION, ID, TOKENS OR ERROR", ", ")

// printRequests prints a row for each request, the newest last.
func printRequests(in *invocation, page manage.Requests) {
	seconds := func(millis float64) string { return strings.TrimPrefix(fmt.Sprintf("%.2fs", millis/1000), "0.00s") }
	rows := [][]string{slices.Clone(requestColumns)}
	for _, r := range slices.Backward(page.Requests) {
		key, result := cmp.Or(r.KeyName, r.KeyID), fmt.Sprintf("%d in, %d out", r.InputTokens, r.OutputTokens)
		if r.FromConsole() {
			key = activity.ConsoleKey
		}
		if r.ErrorClass != "" {
			result = r.ErrorCode + ": " + cmp.Or(r.Reason, r.Error)
		}
		if r.Refusals > 1 {
			result = fmt.Sprintf("%d times %s", r.Refusals, result)
		}
		rows = append(rows, []string{
			r.Time.In(in.env.zone).Format("01-02 15:04:05"), key, cmp.Or(r.Deployment, r.Model),
			fmt.Sprintf("%d %s", r.Status, r.Outcome()), seconds(r.WaitMillis), seconds(r.FirstTokenMillis),
			seconds(r.DurationMillis), r.ID, result,
		})
	}
	switch {
	case len(page.Requests) > 0:
		in.printTable(rows)
	case in.is("follow"):
		return
	default:
		in.printf("No such requests.\n")
	}
	if page.Partial {
		in.warnf("Requests are missing, because gateways do not answer: %s\n", strings.Join(page.Silent, ", "))
	}
	if page.Next != "" && !in.is("follow") {
		in.warnf("For older ones, add --before %s\n", page.Next)
	}
}

// printRequest prints the members of a request that are not empty.
func printRequest(in *invocation, answer any) {
	var members bytes.Buffer
	in.err = printJSON(&members, answer)
	for line := range strings.Lines(members.String()) {
		name, value, _ := strings.Cut(strings.Trim(line, " \n,"), ": ")
		_ = json.Unmarshal([]byte(value), &value) // numbers stay as they are
		name = strings.Trim(name, `"`)
		if name == "connector_id" {
			value = in.connectorName(value)
		}
		if value != "" && value != "0" && value != "false" {
			in.printf("%-16s  %s\n", strings.ReplaceAll(name, "_", " "), value)
		}
	}
}

// follow prints requests when they have ended, until Ctrl-C. Each time it asks for those of an hour, because a request
// has the time of its start.
func (in *invocation) follow() error {
	ctx, stop := signal.NotifyContext(in.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	in.SetContext(ctx)
	r, err := in.request()
	if err != nil {
		return err
	}
	in.widest = make([]int, len(requestColumns))
	for seen, failed := map[string]bool{}, false; ; {
		var page manage.Requests
		err := in.do(r, &page)
		if err != nil && !failed && ctx.Err() == nil {
			cause, _, _ := strings.Cut(err.Error(), "\n")
			in.warnf("Trying again: %s\n", cause)
		}
		failed = err != nil
		page.Requests = slices.DeleteFunc(page.Requests, func(r activity.Request) bool {
			known := seen[r.ID]
			seen[r.ID] = true
			return known
		})
		if !in.is("json") {
			printRequests(in, page)
		} else if len(page.Requests) > 0 {
			_ = printJSON(in.OutOrStdout(), page)
		}
		if wait.For(ctx, in.env.poll) != nil {
			return nil
		}
	}
}
