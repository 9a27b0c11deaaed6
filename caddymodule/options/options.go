// Package options parses the options of Caddyfile directives.
package options

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
)

// List contains the options of a directive.
type List []Option

// Option is one option of a directive.
type Option struct {
	Name  string
	Parse func(*caddyfile.Dispenser) error // parses the arguments; the dispenser is at the name
}

// Unmarshal parses a directive that takes no arguments.
func (l List) Unmarshal(d *caddyfile.Dispenser) error {
	d.Next()
	return l.UnmarshalBlock(d)
}

// UnmarshalBlock parses the block of a directive, and rejects arguments before it.
func (l List) UnmarshalBlock(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	directive := d.Val()
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		i := slices.IndexFunc(l, func(o Option) bool { return o.Name == d.Val() })
		if i < 0 && len(l) == 0 {
			return d.Errf("%s has no options, got %q", directive, d.Val())
		} else if i < 0 {
			return d.Errf("unrecognized option %q; expected %s", d.Val(), l.names())
		}
		if err := l[i].Parse(d); err != nil {
			return err
		}
	}
	return nil
}

// names returns the names of the options, for an error.
func (l List) names() string {
	var names strings.Builder
	names.WriteString(l[0].Name)
	for i, other := range l[1:] {
		separator := ", "
		if i == len(l)-2 {
			separator = " or "
		}
		names.WriteString(separator + other.Name)
	}
	return names.String()
}

// None is embedded by handlers whose directive takes neither arguments nor options.
type None struct{}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler.
func (None) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { return List{}.Unmarshal(d) }

// Once rejects an option that is given twice.
func Once(o Option) Option {
	given := false
	return Option{o.Name, func(d *caddyfile.Dispenser) error {
		if given {
			return d.Errf("%s is given twice", d.Val())
		}
		given = true
		return o.Parse(d)
	}}
}

// single is an option with one argument. valid describes the arguments that parse accepts.
func single[T any](name string, value *T, valid string, parse func(text string) (T, bool)) Option {
	return Option{name, func(d *caddyfile.Dispenser) error {
		var text string
		if !d.AllArgs(&text) {
			return d.ArgErr()
		}
		v, ok := parse(text)
		if !ok {
			return d.Errf("%s: %q is not %s", name, text, valid)
		}
		*value = v
		return nil
	}}
}

// Duration is an option with a duration of at least 0. In JSON the zero value means the default, so 0
// is stored as a negative duration.
func Duration(name string, value *caddy.Duration) Option {
	return single(name, value, "a duration such as 10s or 1m", func(text string) (caddy.Duration, bool) {
		v, err := caddy.ParseDuration(text)
		if v == 0 {
			return caddy.Duration(-time.Nanosecond), err == nil
		}
		return caddy.Duration(v), err == nil && v > 0
	})
}

// Count is an option with a number of at least 0. 0 is stored as -1.
func Count(name string, value *int) Option {
	return single(name, value, "a number such as 64", func(text string) (int, bool) {
		v, err := strconv.ParseUint(text, 10, 31)
		if v == 0 {
			return -1, err == nil
		}
		return int(v), err == nil
	})
}

// Size is an option with a number of bytes, such as 32MiB.
func Size(name string, value *int64) Option {
	return single(name, value, "a size such as 32MiB", func(text string) (int64, bool) {
		v, err := humanize.ParseBytes(text)
		return int64(v), err == nil && v > 0 && v <= math.MaxInt64
	})
}

// Word is an option with one of several words.
func Word(name string, value *string, words ...string) Option {
	return single(name, value, "one of "+strings.Join(words, ", "), func(text string) (string, bool) {
		return text, slices.Contains(words, text)
	})
}

// Text is an option with any text.
func Text(name string, value *string) Option {
	return single(name, value, "", func(text string) (string, bool) { return text, true })
}

// Texts is an option with one or more arguments. If it is given again, its arguments are appended.
func Texts(name string, values *[]string) Option {
	return Option{name, func(d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		if len(args) == 0 {
			return d.ArgErr()
		}
		*values = append(*values, args...)
		return nil
	}}
}
