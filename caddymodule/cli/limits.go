package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/limits"
)

// usageLimitHelp describes the limits of a key, or of all keys of an account together.
var usageLimitHelp = map[string]string{
	"requests_per_minute": "Requests to models per minute",
	"requests_per_day":    "Requests to models per day",
	"tokens_per_minute":   "Tokens of prompts and answers per minute",
	"tokens_per_day":      "Tokens of prompts and answers per day",
	"tokens_per_month":    "Tokens of prompts and answers per month",
	"seconds_per_day":     "Seconds per day that model servers may be busy",
	"concurrency":         "Requests that may run at a time; further ones wait",
	"max_output_tokens":   "Tokens of each answer",
}

const limitsHelp = `Limits are whole numbers such as 60, 500k or 2M; 0 is no limit. Days and months are
those of UTC. A limit that changes applies to the next request.`

// usageLimitFlags adds a flag for each limit of usage. of says whose limits they are.
func usageLimitFlags(f *pflag.FlagSet, prefix, of string) {
	for _, name := range limits.Names() {
		f.String(prefix+limitFlag(name), "", usageLimitHelp[name]+of+" (default no limit)")
	}
}

// usageLimits returns the given limits of usage.
func usageLimits(in *invocation, prefix string) (map[string]int, error) {
	given := map[string]int{}
	for _, name := range limits.Names() {
		flag := prefix + limitFlag(name)
		if !in.Flags().Changed(flag) {
			continue
		}
		n, ok := limits.ParseAmount(in.text(flag))
		if !ok {
			return nil, up.Usagef("--%s %q is not a whole number such as 60, 500k or 2M", flag, in.text(flag))
		}
		given[name] = n
	}
	return given, nil
}

// limitList lists limits for people.
func limitList(l limits.UsageLimits) string {
	var texts []string
	for _, name := range limits.Names() {
		if n := *l.Field(name); n > 0 {
			texts = append(texts, fmt.Sprintf("%s %d", strings.ReplaceAll(name, "_", " "), n))
		}
	}
	if len(texts) == 0 {
		return "none"
	}
	return strings.Join(texts, ", ")
}
