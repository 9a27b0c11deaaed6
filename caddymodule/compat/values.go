package compat

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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
	maxDepth    = 32 // levels of an object
	effortsName = "efforts"
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

// reserved are the members of a chat request that the gateway sets or counts. Options do not change them.
var reserved = [...]string{
	"model", "messages", "prompt", "input", "stream", "stream_options", "tools", "tool_choice", "functions",
	"function_call", "n", "n_cmpl", "best_of",
}

// outputLimits are the names by which model servers limit an answer. In options, they count as one.
var outputLimits = [...]string{"max_tokens", "max_completion_tokens", "n_predict", "max_new_tokens"}

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
	if err := o.checkDepth(s); err != nil || s.Name != effortsName {
		return cmp.Or(err, checkMembers(s, members))
	}
	for _, effort := range slices.Sorted(maps.Keys(members)) {
		value := members[effort]
		var parameters map[string]jsontext.Value
		switch {
		case !slices.Contains(efforts, effort):
			return fmt.Errorf("option %q: unknown effort %.40q; the efforts are %s", s.Name, effort,
				strings.Join(efforts, ", "))
		case value.Kind() == '"' && string(value) != `""`:
		case value.Kind() != '{' || json.Unmarshal(value, &parameters) != nil:
			return fmt.Errorf("option %q: the effort %q must be a name or an object", s.Name, effort)
		default:
			if err := checkMembers(s, parameters); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkDepth limits the depth of an object: each level that merges costs a scan of the client's.
func (o Object) checkDepth(s Option) error {
	for d := jsontext.NewDecoder(strings.NewReader(string(o))); ; {
		if _, err := d.ReadToken(); err != nil {
			return nil // its end
		}
		if d.StackDepth() > maxDepth {
			return fmt.Errorf("option %q must not have more than %d levels", s.Name, maxDepth)
		}
	}
}

// checkMembers returns an error if an option has a member of a request that it must not change.
func checkMembers(s Option, members map[string]jsontext.Value) error {
	seen, limited := make(map[string]string), ""
	for _, name := range slices.Sorted(maps.Keys(members)) {
		isLike := func(other string) bool { return strings.EqualFold(name, other) }
		isRouting := func(other string) bool { return IsRouting([]byte(name), other) }
		other := seen[FoldName(name)]
		seen[FoldName(name)] = name
		switch {
		case slices.ContainsFunc(reserved[:], isLike):
			return fmt.Errorf("option %q must not have %q, which the gateway sets", s.Name, name)
		case slices.ContainsFunc(RoutingNames[:], isRouting):
			return fmt.Errorf("option %q must not have %.80q: the model, the server and the credentials are those "+
				"of the deployment", s.Name, name)
		case other != "":
			return fmt.Errorf("option %q has both %.80q and %.80q; keep one", s.Name, other, name)
		case !slices.ContainsFunc(outputLimits[:], isLike):
			continue
		case s.Name == effortsName:
			return fmt.Errorf("option %q must not have %q; set it in defaults or force", s.Name, name)
		case limited != "":
			return fmt.Errorf("option %q has both %q and %q, which mean the same; keep one", s.Name, limited, name)
		}
		n, err := strconv.Atoi(string(members[name]))
		if err != nil || n < 1 || n > maxWindow || !slices.Contains(outputLimits[:], name) {
			return fmt.Errorf("option %q: %q must be a number from 1 to %d", s.Name, strings.ToLower(name), maxWindow)
		}
		limited = name
	}
	return nil
}

// FoldName returns a form that names have in common if they differ only in case. Some JSON parsers ignore it.
func FoldName(name string) string {
	folds := func(r rune) bool { return 'A' <= r && r <= 'Z' || r >= utf8.RuneSelf }
	if !strings.ContainsFunc(name, folds) {
		return name
	}
	return strings.ToLower(strings.ToUpper(name))
}
