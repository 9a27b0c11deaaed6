package compat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The forms of values, for errors.
const (
	formTokens   = "a number of tokens up to 100000000, or 0"
	formObject   = "a JSON object of at most 8 KiB"
	formDuration = "a duration up to 24h such as 2m, or off"
)

const (
	maxWindow   = 100_000_000
	maxDuration = 24 * time.Hour
	maxObject   = 8 << 10 // bytes
	maxShown    = 60      // bytes of an object in a list of options
	emptyObject = "{}"
	noDuration  = "off"
)

// Duration is the value of an option. 0 is "off".
type Duration time.Duration

// String returns a text such as "2m".
func (d Duration) String() string {
	if d == 0 {
		return noDuration
	}
	text := time.Duration(d).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	if string(text) == noDuration {
		*d = 0
		return nil
	}
	n, err := time.ParseDuration(string(text))
	*d = Duration(n)
	return err
}

// Object is a JSON object without white space, "" for an empty one.
type Object string

// String returns the object.
func (o Object) String() string {
	if o == "" {
		return emptyObject
	}
	return string(o)
}

// MarshalJSON implements [json.Marshaler].
func (o Object) MarshalJSON() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalJSON implements [json.Unmarshaler].
func (o *Object) UnmarshalJSON(data []byte) error { return o.UnmarshalText(data) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *Object) UnmarshalText(text []byte) error {
	value := slices.Clone(jsontext.Value(text))
	if !value.IsValid() || value.Kind() != '{' {
		return errors.New("not a JSON object")
	}
	if err := value.Compact(); err != nil {
		return err
	}
	if *o = Object(value); *o == emptyObject {
		*o = ""
	}
	return nil
}

// reserved are the members of a chat request that the gateway sets or reads. Options do not change them.
var reserved = []string{
	"model", "messages", "stream", "stream_options", "tools", "tool_choice", "functions", "function_call", "n",
}

// efforts are the reasoning efforts of all dialects.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// check checks an object of an option.
func (o Object) check(s Option) error {
	if o == "" {
		return nil
	}
	var members map[string]jsontext.Value
	if len(o) > maxObject || json.Unmarshal([]byte(o), &members) != nil {
		return s.wrong()
	}
	if s.Name != "efforts" {
		return checkMembers(s, members)
	}
	for effort, value := range members {
		var parameters map[string]jsontext.Value
		switch {
		case !slices.Contains(efforts, effort):
			return fmt.Errorf("option %q: unknown effort %.40q; the efforts are %s", s.Name, effort, strings.Join(efforts, ", "))
		case value.Kind() == '"':
		case json.Unmarshal(value, &parameters) != nil || parameters == nil:
			return fmt.Errorf("option %q: the effort %q must be a name or an object", s.Name, effort)
		default:
			if err := checkMembers(s, parameters); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMembers returns an error if an option has a member of a request that it must not change.
func checkMembers(s Option, members map[string]jsontext.Value) error {
	for _, name := range reserved {
		if _, ok := members[name]; ok {
			return fmt.Errorf("option %q must not have %q, which the gateway sets", s.Name, name)
		}
	}
	return nil
}
