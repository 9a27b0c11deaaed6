package compat

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

const emptyObject = "{}"

// Object is a JSON object without white space, "" for an empty one.
type Object string

// MarshalJSON implements [json.Marshaler].
func (o Object) MarshalJSON() ([]byte, error) { return []byte(cmp.Or(o, emptyObject)), nil }

// UnmarshalJSON implements [json.Unmarshaler]. It fails if names are duplicated.
func (o *Object) UnmarshalJSON(data []byte) error {
	value := slices.Clone(jsontext.Value(data))
	if value.Format() != nil || value.Kind() != '{' || !jsonscan.Valid(value) {
		return errors.New("not a JSON object, or one with duplicate names or too many levels")
	}
	if *o = Object(value); *o == emptyObject {
		*o = ""
	}
	return nil
}

var (
	// outputLimits are the names by which model servers limit an answer.
	outputLimits = []string{"max_tokens", "max_completion_tokens", "n_predict", "max_new_tokens"}
	// reserved are the members of a chat request that the gateway sets or counts.
	reserved = append([]string{
		"model", "messages", "prompt", "input", "stream", "stream_options", "tools", "tool_choice", "functions",
		"function_call", "n", "n_cmpl", "best_of",
	}, outputLimits...)
	// Efforts are the reasoning efforts of all dialects. Messages requests accept those from low to max.
	Efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}
)

// checkEfforts checks the members of the option efforts.
func (s Option) checkEfforts(o Object) error {
	for m := jsonscan.Checked([]byte(o)); m.Next(); {
		effort, value := string(m.Name()), m.Raw()
		if !slices.Contains(Efforts, effort) {
			return fmt.Errorf("option %q: unknown effort %.40q; the efforts are %s", s.Name, effort,
				strings.Join(Efforts, ", "))
		}
		if value[0] != '"' && value[0] != '{' {
			return fmt.Errorf("option %q: the effort %q must be a name or an object", s.Name, effort)
		}
		if err := s.checkParameters(value, nil); err != nil {
			return err
		}
	}
	return nil
}

// checkParameters checks the members of an object with parameters. limits are the names that may limit an answer.
func (s Option) checkParameters(object []byte, limits []string) error {
	for m := jsonscan.Checked(object); m.Next(); {
		name := string(m.Name())
		isLimit := slices.Contains(limits, name)
		n, err := strconv.Atoi(string(m.Raw()))
		switch {
		case !isLimit && slices.Contains(reserved, strings.ToLower(name)):
			return fmt.Errorf("option %q must not have %q, which the gateway sets", s.Name, name)
		case name != strings.ToLower(name):
			return fmt.Errorf("option %q: %.40q must be written in lower case, as model servers do", s.Name, name)
		case isLimit && (err != nil || n < 1 || n > maxWindow):
			return fmt.Errorf("option %q: %q must be a number from 1 to %d", s.Name, name, maxWindow)
		}
	}
	return nil
}
