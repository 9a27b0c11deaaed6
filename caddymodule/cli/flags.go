package cli

import (
	"cmp"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/caddymodule/cli/up"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// field is a field of a request that the argument or a flag sets.
type field struct {
	manage.Field
	object string // the member of the request that has the field; "": the request itself
}

// The formats of fields. The default is the kind of the field's type.
const (
	formatAmount   = "amount"   // a number such as 500k
	formatDays     = "days"     // a number of them; 0: never
	formatDuration = "duration" // also in days
	formatList     = "list"     // separated by commas
	formatNetworks = "networks" // or "any"
	formatTime     = "time"     // or "never"
	formatTrue     = "true"     // or absent
)

// fields returns the fields of the requests of the command's operation.
func (c *command) fields() (all []field) {
	if c.operation == "" {
		return nil
	}
	for _, f := range manage.FindOperation(c.operation).Fields() {
		switch {
		case f.Set:
			for limit := range reflect.TypeFor[limits.UsageLimits]().Fields() {
				name, _, _ := strings.Cut(limit.Tag.Get("json"), ",")
				all = append(all, field{manage.Field{
					Name: name, Flag: f.Flag + strings.ReplaceAll(name, "_", "-"), Format: formatAmount,
					FlagHelp: f.FlagHelp + limit.Tag.Get("help") + " (default no limit)",
				}, f.Name})
			}
		case f.Name == c.argument && f.Name != "":
			f.Flag = ""
			all = append(all, field{f, ""})
		case f.Flag != "-":
			f.Format = cmp.Or(f.Format, formatOf(f.Type))
			if f.Need == "required" {
				f.FlagHelp += " (required)"
			}
			all = append(all, field{f, ""})
		}
	}
	return all
}

// formatOf returns the format of a field that has no tag for it.
func formatOf(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		return formatTime
	case reflect.TypeFor[[]netip.Prefix]():
		return formatNetworks
	}
	return t.Kind().String()
}

// addFlag adds the flag of the field.
func (f field) addFlag(flags *pflag.FlagSet) {
	switch f.Format {
	case "bool", formatTrue:
		flags.Bool(f.Flag, false, f.FlagHelp)
	case "int":
		flags.Int(f.Flag, 0, f.FlagHelp)
	case "slice", "struct":
		flags.StringArray(f.Flag, nil, f.FlagHelp)
	case formatList, formatNetworks:
		flags.StringSlice(f.Flag, nil, f.FlagHelp)
	default:
		flags.String(f.Flag, f.Default, f.FlagHelp)
	}
}

// fill sets the field of a request, if the command line has it.
func (f field) fill(in *invocation, r *request) error {
	if f.Flag == "" {
		r.set(f.Name, in.arg)
		return nil
	}
	if f.Need == "required" && in.text(f.Flag) == "" {
		return in.missing(f.Flag)
	}
	given := in.Flags().Changed(f.Flag) || f.Default != ""
	if !given || f.Format == "struct" { // the command reads it
		return nil
	}
	value, err := f.value(in)
	switch {
	case err != nil:
		return err
	case value == "" && f.Need != "" && r.body != nil: // the default
		return nil
	case value == false && r.body == nil: // a query names only what is true
		return nil
	case f.object == "":
		r.set(f.Name, value)
		return nil
	}
	members, ok := r.body[f.object].(map[string]any)
	if !ok {
		members = map[string]any{}
		r.set(f.object, members)
	}
	members[f.Name] = value
	return nil
}

// value returns the value of the flag for a request.
func (f field) value(in *invocation) (any, error) {
	text := in.text(f.Flag)
	switch f.Format {
	case "bool", formatTrue:
		return in.is(f.Flag), nil
	case "int":
		return in.Flags().GetInt(f.Flag)
	case "slice", "struct":
		return in.Flags().GetStringArray(f.Flag)
	case formatList:
		return in.Flags().GetStringSlice(f.Flag)
	case formatNetworks:
		return in.networks(f.Flag)
	case formatTime:
		return in.expiry(f.Flag, text)
	case formatDuration:
		d, err := caddy.ParseDuration(text)
		if err != nil || d < 0 || d > store.MaxGrace {
			return nil, up.Usagef("--%s %q is not a duration of 0s to 30d, such as 24h", f.Flag, text)
		}
		return d.String(), nil
	case formatDays:
		const day = 24 * time.Hour
		if text == "never" {
			return 0, nil
		}
		d, err := caddy.ParseDuration(text)
		if err != nil || d < day || d%day != 0 {
			return nil, up.Usagef("--%s %q is neither whole days such as 90d, nor never", f.Flag, text)
		}
		return int(d / day), nil
	case formatAmount:
		n, ok := limits.ParseAmount(text)
		if !ok {
			return nil, up.Usagef("--%s %q is not a whole number such as 60, 500k or 2M", f.Flag, text)
		}
		return n, nil
	}
	return text, nil
}

// missing returns the error for a flag that the command line lacks.
func (in *invocation) missing(flag string) error {
	return up.Usagef("--%s is missing; for example: %s", flag, in.sample())
}

// sample returns the first example of the help, with the argument of this command line.
func (in *invocation) sample() string {
	first, _, _ := strings.Cut(strings.TrimSpace(in.Example), "\n")
	words := strings.Split(first, " ")
	if path := len(strings.Fields(in.CommandPath())); in.arg != "" && len(words) > path {
		words[path] = in.arg
	}
	return strings.Join(words, " ")
}

// networks returns the networks of a flag. "any" is none.
func (in *invocation) networks(flag string) ([]string, error) {
	networks, _ := in.Flags().GetStringSlice(flag)
	if len(networks) == 1 && networks[0] == "any" {
		return []string{}, nil
	}
	if len(networks) == 0 {
		return nil, up.Usagef("--%s is empty; give networks such as 10.0.0.0/8, or any", flag)
	}
	if _, err := store.ParseNetworks(networks); err != nil {
		return nil, up.Usagef("--%s must be networks such as 10.0.0.0/8, or any: %w", flag, err)
	}
	return networks, nil
}

// expiry returns the time of a flag. "never" is nil.
func (in *invocation) expiry(flag, text string) (any, error) {
	if text == "never" {
		return nil, nil
	}
	if d, err := caddy.ParseDuration(text); err == nil && d > 0 {
		return in.env.now().UTC().Add(d).Format(time.RFC3339), nil
	}
	if end, err := time.Parse(time.RFC3339, text); err == nil {
		return end.UTC().Format(time.RFC3339), nil
	}
	return nil, up.Usagef("--%s %q is neither a duration such as 30d, nor a time such as 2027-01-31T12:00:00Z, nor never",
		flag, text)
}
