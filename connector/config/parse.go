package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/postern-dev/postern/connector/link"
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
		return Config{}, fmt.Errorf("the configuration has %d bytes, more than the %d allowed; is this the right file?", len(data), maxConfigBytes)
	}
	data = bytes.TrimPrefix(data, byteOrderMark)
	if len(bytes.TrimSpace(data)) == 0 {
		return Config{}, errors.New(`the configuration is empty; write {"tunnel_token": "…", "upstream": "http://localhost:11434"}`)
	}
	if err := checkSyntax(data); err != nil {
		return Config{}, err
	}
	var c Config
	return c, decode("", data, reflect.ValueOf(&c).Elem())
}

// decode decodes a JSON value into a struct with tags, a map, a slice, a string or a
// number. Errors name its path, at; "" is the whole document.
func decode(at string, raw json.RawMessage, into reflect.Value) error {
	switch into.Kind() {
	case reflect.Struct:
		known := tags(into.Type())
		fields, err := object(at, raw, known)
		if err != nil {
			return err
		}
		for i, name := range known {
			if raw, ok := fields[name]; ok {
				if err := decode(join(at, name), raw, into.Field(i)); err != nil {
					return err
				}
			}
		}
	case reflect.Map:
		fields, err := object(at, raw, nil)
		if err != nil {
			return err
		}
		into.Set(reflect.MakeMapWithSize(into.Type(), len(fields)))
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			value := reflect.New(into.Type().Elem()).Elem()
			if err := decode(join(at, name), fields[name], value); err != nil {
				return err
			}
			into.SetMapIndex(reflect.ValueOf(name), value)
		}
	case reflect.Slice:
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil || kind(raw) != "a list" {
			return fmt.Errorf("%s: must be a list, not %s", at, kind(raw))
		}
		into.Set(reflect.MakeSlice(into.Type(), len(items), len(items)))
		for i, item := range items {
			if err := decode(fmt.Sprintf("%s[%d]", at, i), item, into.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Int:
		err := json.Unmarshal(raw, into.Addr().Interface())
		if err != nil || into.Int() < 1 || into.Int() > link.MostMaxRequests {
			return fmt.Errorf("%s: must be a whole number from 1 to %d", at, link.MostMaxRequests)
		}
	default:
		if kind(raw) != "text" {
			return fmt.Errorf("%s: must be text in quotes, not %s", at, kind(raw))
		}
		if err := json.Unmarshal(raw, into.Addr().Interface()); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// tags returns the JSON names of the fields of a struct.
func tags(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return names
}

// object splits the JSON object in raw into its fields. If known is nil, any name is
// allowed. A repeated name is an error, as parsers treat it differently.
func object(at string, raw json.RawMessage, known []string) (map[string]json.RawMessage, error) {
	if kind(raw) != "an object" {
		return nil, fmt.Errorf("%s: must be an object in braces, not %s", orDocument(at), kind(raw))
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("%s: %w", orDocument(at), err)
	}
	fields := make(map[string]json.RawMessage)
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", orDocument(at), err)
		}
		name, _ := token.(string) // keys are always strings
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("%s: given twice; remove one of the two", join(at, name))
		}
		if known != nil && !slices.Contains(known, name) {
			return nil, fmt.Errorf("%s: unknown field; %s", join(at, name), suggestion(name, known, "known here: "+strings.Join(known, ", ")))
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("%s: %w", join(at, name), err)
		}
		fields[name] = value
	}
	return fields, nil
}

// checkSyntax returns an error with line and column for the first syntax error, or for
// data after the first value.
func checkSyntax(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	var whole json.RawMessage
	if err := dec.Decode(&whole); err != nil {
		at := int64(len(data))
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			at = syntax.Offset
		}
		line, column := position(data, at)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("line %d, column %d: the JSON ends too early; is a brace or a quote missing?", line, column)
		}
		return fmt.Errorf("line %d, column %d: invalid JSON: %w", line, column, err)
	}
	if rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		line, column := position(data, int64(len(data)-len(rest)+1))
		return fmt.Errorf("line %d, column %d: unexpected data after the closing brace; remove it", line, column)
	}
	return nil
}

// position converts a number of bytes read to a line and a column, both from 1.
func position(data []byte, read int64) (line, column int) {
	before := data[:max(0, min(read-1, int64(len(data))))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}

// kind names the type of a JSON value in everyday words.
func kind(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "text"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func orDocument(at string) string {
	if at == "" {
		return "the configuration"
	}
	return at
}
