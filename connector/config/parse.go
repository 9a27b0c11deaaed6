package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
)

// maxConfigBytes is far above any sensible configuration. A path to a model file is an
// error, and not gigabytes of memory.
const maxConfigBytes = 1 << 20

// byteOrderMark is written by some editors on Windows.
var byteOrderMark = []byte("\xef\xbb\xbf")

// Parse decodes a configuration. Unknown and repeated members, names in another case, nulls
// and trailing data are errors. [Config.Validate] checks the values.
func Parse(data []byte) (Config, error) {
	if len(data) > maxConfigBytes {
		return Config{}, fmt.Errorf("the configuration has %d bytes, more than the %d allowed; is this the right file?",
			len(data), maxConfigBytes)
	}
	data = bytes.TrimPrefix(data, byteOrderMark)
	if len(bytes.TrimSpace(data)) == 0 {
		return Config{}, errors.New("the configuration is empty; write " +
			`{"tunnel_token": "…", "upstream": "http://localhost:11434"}`)
	}
	var c Config
	err := json.Unmarshal(data, &c, json.RejectUnknownMembers(true),
		json.WithUnmarshalers(json.UnmarshalFromFunc(decode)))
	if err != nil {
		return Config{}, explain(data, err)
	}
	return c, nil
}

// decode refuses null, which package json reads as the zero value, and decodes numbers. It
// leaves all other values to package json.
func decode(dec *jsontext.Decoder, v any) error {
	number, isNumber := v.(*int)
	size, isSize := v.(*Size)
	switch kind := dec.PeekKind(); {
	case kind == 'n':
		return &json.SemanticError{JSONKind: 'n'}
	case !isNumber && (!isSize || kind != '0'):
		return json.SkipFunc
	}
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if isSize {
		*size = Size(value)
		return nil
	}
	n, err := strconv.Atoi(string(value))
	if err != nil || n < 1 || n > link.MaxRequestsLimit {
		return &json.SemanticError{JSONKind: value.Kind()}
	}
	*number = n
	return nil
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. It accepts the alias of BaseURL.
func (u *Upstream) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain Upstream
	var members struct {
		plain
		BaseURL *string `json:"base_url"`
		Alias   *string `json:"BaseUrl"`
	}
	if err := json.UnmarshalDecode(dec, &members); err != nil {
		return err
	}
	if members.BaseURL != nil && members.Alias != nil {
		return &jsontext.SyntacticError{JSONPointer: dec.StackPointer() + "/base_url", Err: jsontext.ErrDuplicateName}
	}
	*u = Upstream(members.plain)
	if url := cmp.Or(members.BaseURL, members.Alias); url != nil {
		u.BaseURL = *url
	}
	return nil
}

// explain translates an error of package json. The translation names the field and the fix.
func explain(data []byte, err error) error {
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(e, jsontext.ErrDuplicateName) {
			path, outer, inner := locate(e.JSONPointer)
			if outer == nil { // within an object that should be another value
				return wrongType(path, inner, '{')
			}
			return fmt.Errorf("%s: given twice; remove one of the two", path)
		}
		return explainSyntax(data, e)
	}
	e, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return err
	}
	path, outer, inner := locate(e.JSONPointer)
	if errors.Is(e, json.ErrUnknownName) {
		fields := tags(outer)
		return fmt.Errorf("%s: unknown field; %s", path,
			suggestion(e.JSONPointer.LastToken(), fields, "known here: "+strings.Join(fields, ", ")))
	}
	return wrongType(path, inner, e.JSONKind)
}

// wrongType returns the error of a value that is not of the type t.
func wrongType(path string, t reflect.Type, kind jsontext.Kind) error {
	switch {
	case t == reflect.TypeFor[Size]():
		return fmt.Errorf(`%s: must be a number of bytes or text such as "256MiB", not %s`, path, kinds[kind])
	case t.Kind() == reflect.Int:
		return fmt.Errorf("%s: must be a whole number from 1 to %d", path, link.MaxRequestsLimit)
	}
	return fmt.Errorf("%s: must be %s, not %s", cmp.Or(path, "the configuration"), wanted[t.Kind()], kinds[kind])
}

// explainSyntax translates a syntax error. The translation names its line and column.
func explainSyntax(data []byte, e *jsontext.SyntacticError) error {
	problem := "invalid JSON: " + e.Err.Error()
	switch {
	case errors.Is(e, io.ErrUnexpectedEOF):
		problem = "the JSON ends too early; is a brace or a quote missing?"
	case strings.HasSuffix(problem, "after top-level value"):
		problem = "unexpected data after the closing brace; remove it"
	}
	before := data[:min(int(e.ByteOffset), len(data)-1)]
	return fmt.Errorf("line %d, column %d: %s", bytes.Count(before, []byte("\n"))+1,
		len(before)-bytes.LastIndexByte(before, '\n'), problem)
}

// locate returns the path of a value, such as routes[0].model, its type, and the type of the
// object or list around it. The type of an unknown field is nil. If the place is within a value that
// should have no members, the path and type are of that value, and outer is nil.
func locate(pointer jsontext.Pointer) (path string, outer, inner reflect.Type) {
	inner = reflect.TypeFor[Config]()
	for token := range pointer.Tokens() {
		switch outer = inner; outer.Kind() {
		case reflect.Slice:
			path, inner = path+"["+token+"]", outer.Elem()
			continue
		case reflect.Map:
			inner = outer.Elem()
		case reflect.Struct:
			token, inner = field(outer, token)
		default:
			return path, nil, outer
		}
		path = strings.TrimPrefix(path+"."+token, ".")
	}
	return path, outer, inner
}

// field returns the name and the type of a member of an object. An alias stands for its
// field. The type of an unknown member is nil.
func field(t reflect.Type, written string) (name string, value reflect.Type) {
	for i, name := range tags(t) {
		if written == name || written == t.Field(i).Tag.Get("alias") {
			return name, t.Field(i).Type
		}
	}
	return written, nil
}

// tags returns the JSON names of the fields of a struct.
func tags(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return names
}

// wanted describes the JSON values of the types in a configuration.
var wanted = map[reflect.Kind]string{
	reflect.Struct: "an object in braces", reflect.Map: "an object in braces", reflect.Slice: "a list",
	reflect.String: "text in quotes", reflect.Bool: "true or false",
}

// kinds describes kinds of JSON values in everyday words.
var kinds = map[jsontext.Kind]string{
	'{': "an object", '[': "a list", 'n': "null", '"': "text", 't': "true or false", 'f': "true or false",
	'0': "a number",
}

// suggestion returns the end of an error about an unknown name: the most similar
// candidate, or else otherwise.
func suggestion(name string, candidates []string, otherwise string) string {
	if similar := text.Similar(name, candidates); similar != "" {
		return fmt.Sprintf("did you mean %q?", similar)
	}
	return otherwise
}
