package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
)

// maxConfigBytes is far above any sensible configuration. A path to a model file is an
// error, and not gigabytes of memory.
const maxConfigBytes = 1 << 20

// byteOrderMark is written by some editors on Windows.
var byteOrderMark = []byte("\xef\xbb\xbf")

// Parse decodes a configuration. It is stricter than encoding/json: unknown fields,
// repeated fields, a different case and trailing data are errors. [Config.Validate]
// checks the values.
func Parse(data []byte) (Config, error) {
	if len(data) > maxConfigBytes {
		return Config{}, fmt.Errorf("the configuration has %d bytes, more than the %d allowed; is this the right file?",
			len(data), maxConfigBytes)
	}
	data = bytes.TrimPrefix(data, byteOrderMark)
	if len(bytes.TrimSpace(data)) == 0 {
		return Config{}, errors.New(`the configuration is empty; write {"tunnel_token": "…", "upstream": ` +
			`"http://localhost:11434"}`)
	}
	if err := checkSyntax(data); err != nil {
		return Config{}, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := check(dec, "", reflect.TypeFor[Config]()); err != nil {
		return Config{}, err
	}
	var c Config
	return c, json.Unmarshal(data, &c)
}

// checkSyntax returns an error with line and column for the first syntax error, or for
// data after the first value.
func checkSyntax(data []byte) error {
	var syntax *json.SyntaxError
	if !errors.As(json.Unmarshal(data, new(json.RawMessage)), &syntax) {
		return nil
	}
	problem := syntax.Error()
	switch {
	case strings.HasPrefix(problem, "unexpected end"):
		problem = "the JSON ends too early; is a brace or a quote missing?"
	case strings.HasSuffix(problem, "after top-level value"):
		problem = "unexpected data after the closing brace; remove it"
	default:
		problem = "invalid JSON: " + problem
	}
	before := data[:syntax.Offset-1]
	return fmt.Errorf("line %d, column %d: %s", bytes.Count(before, []byte("\n"))+1,
		len(before)-bytes.LastIndexByte(before, '\n'), problem)
}

// wanted names the JSON values of the types in a configuration.
var wanted = map[reflect.Kind]string{
	reflect.Struct: "an object in braces", reflect.Map: "an object in braces", reflect.Slice: "a list",
	reflect.String: "text in quotes",
}

// check checks that the next value of a valid document fits a type. Errors name its path,
// at; "" is the whole document.
func check(dec *json.Decoder, at string, t reflect.Type) error {
	value, err := dec.Token()
	if err != nil {
		return err
	}
	if t.Kind() == reflect.Int {
		number, _ := value.(json.Number)
		if n, err := strconv.Atoi(number.String()); err != nil || n < 1 || n > link.MostMaxRequests {
			return fmt.Errorf("%s: must be a whole number from 1 to %d", at, link.MostMaxRequests)
		}
		return nil
	}
	if want, got := wanted[t.Kind()], kind(value); !strings.HasPrefix(want, got) {
		return fmt.Errorf("%s: must be %s, not %s", cmp.Or(at, "the configuration"), want, got)
	}
	switch t.Kind() {
	case reflect.String:
		return nil
	case reflect.Slice:
		for i := 0; dec.More(); i++ {
			if err := check(dec, fmt.Sprintf("%s[%d]", at, i), t.Elem()); err != nil {
				return err
			}
		}
	default:
		if err := checkFields(dec, at, t); err != nil {
			return err
		}
	}
	_, err = dec.Token() // the closing bracket
	return err
}

// checkFields checks the fields of an object. A repeated name is an error, as parsers
// treat it differently.
func checkFields(dec *json.Decoder, at string, t reflect.Type) error {
	if at != "" {
		at += "."
	}
	seen := make(map[string]bool)
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		written, _ := token.(string) // keys are always strings
		name, field, err := memberOf(t, written)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", at+written, err)
		case seen[name]:
			return fmt.Errorf("%s: given twice; remove one of the two", at+name)
		}
		seen[name] = true
		if err := check(dec, at+name, field); err != nil {
			return err
		}
	}
	return nil
}

// memberOf returns the name and the type of a member of an object. The name of an alias
// is that of its field.
func memberOf(t reflect.Type, written string) (name string, value reflect.Type, err error) {
	if t.Kind() == reflect.Map {
		return written, t.Elem(), nil
	}
	known := tags(t)
	for i, name := range known {
		if written == name || written == t.Field(i).Tag.Get("alias") {
			return name, t.Field(i).Type, nil
		}
	}
	return "", nil, fmt.Errorf("unknown field; %s", suggestion(written, known, "known here: "+strings.Join(known, ", ")))
}

// tags returns the JSON names of the fields of a struct.
func tags(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return names
}

// kind names the type of a JSON value in everyday words.
func kind(value json.Token) string {
	switch value {
	case json.Delim('{'):
		return "an object"
	case json.Delim('['):
		return "a list"
	case nil:
		return "null"
	}
	switch value.(type) {
	case string:
		return "text"
	case bool:
		return "true or false"
	default:
		return "a number"
	}
}

// suggestion returns the end of an error about an unknown name: the most similar
// candidate, or else otherwise.
func suggestion(name string, candidates []string, otherwise string) string {
	if similar := text.Similar(name, candidates); similar != "" {
		return fmt.Sprintf("did you mean %q?", similar)
	}
	return otherwise
}
