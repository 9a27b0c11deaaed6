package manage

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

// maxBody bounds the body of a management request, in bytes.
const maxBody = 64 << 10

// member is a JSON member or query parameter of a request: a field of its struct.
type member struct {
	name string
	to   any    // pointer
	need string // "", or one of the following
	then func() // called after to is set, unless nil
}

// The values of the tag need.
const (
	needRequired = "required" // it must not be missing or empty
	needFilled   = "filled"   // it may be missing, but not empty
)

// givenLimits are the limits of an account that a request has, by name.
type givenLimits map[string]int

// GivenUsageLimits are the limits of a key that a request has, by name.
type GivenUsageLimits map[string]int

// apply sets the limits.
func (limits GivenUsageLimits) apply(l *limits.UsageLimits) {
	for name, n := range limits {
		*l.Field(name) = n
	}
}

// decode reads a request into a struct, from the JSON object in its body, or from the
// query of GET and DELETE. It is strict: an unknown, duplicate, mistyped or missing
// member is an error that names it. (encoding/json alone accepts duplicates, and
// names in another case.) A field with the tag path gets the record of the path.
// Each request may name an account.
func decode[B any](w http.ResponseWriter, r *http.Request) (request B, account string, err error) {
	var members []member
	for field, value := range reflect.ValueOf(&request).Elem().Fields() {
		if name := field.Tag.Get("json"); name != "" && name != "-" {
			members = append(members, member{name: name, to: value.Addr().Interface(), need: field.Tag.Get("need")})
		}
		if field.Tag.Get("path") == "record" {
			value.SetString(cmp.Or(r.PathValue("id"), r.PathValue("name")))
		}
		if field.Type == reflect.TypeFor[givenLimits]() {
			given := givenLimits{}
			value.Set(reflect.ValueOf(given))
			for _, name := range slices.Concat(store.RecordLimitNames(), limits.Names()) {
				n := new(int)
				members = append(members, member{name: name, to: n, then: func() { given[name] = *n }})
			}
		}
	}
	members = append(members, member{name: "account", to: &account})
	if r.Method == http.MethodGet || r.Method == http.MethodDelete {
		err = decodeQuery(r.URL.RawQuery, members)
		return request, account, err
	}
	data, err := readBody(w, r)
	if err == nil {
		err = decodeBody(data, members)
	}
	return request, account, err
}

// readBody reads a body that must be JSON.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return nil, faultf(errMediaType, "the body must be JSON; send `Content-Type: application/json`")
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, faultf(errTooLarge, "the body is larger than %d bytes", maxBody)
		}
		return nil, badRequest("failed to read the body: %v", err)
	}
	const byteOrderMark = "\ufeff" // some editors and shells write it
	return bytes.TrimPrefix(data, []byte(byteOrderMark)), nil
}

// decodeBody decodes a JSON object into its members.
func decodeBody(data []byte, members []member) error {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return badRequest("the body must be a JSON object with the fields %s", names(members))
	}
	err := eachMember(data, "field", func(name string, value json.RawMessage) error {
		m, ok := find(members, func(m member) bool { return m.name == name })
		if !ok {
			return badRequest("unknown field %q; the fields are %s", name, names(members))
		}
		return m.decode(value)
	})
	if err != nil {
		return err
	}
	for _, m := range members {
		if m.need == needRequired && *m.to.(*string) == "" {
			return badRequest("field %q is required", m.name)
		}
	}
	return nil
}

// decodeQuery decodes a query, whose members are all strings.
func decodeQuery(raw string, members []member) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return badRequest("the query of the URL is invalid: %v", err)
	}
	for name, values := range query {
		m, ok := find(members, func(m member) bool { return m.name == name })
		if !ok {
			return badRequest("unknown query parameter %q; the parameters are %s", name, names(members))
		}
		if len(values) > 1 {
			return badRequest("query parameter %q is given twice", name)
		}
		if *m.to.(*string) = values[0]; m.need != "" && values[0] == "" {
			return badRequest("query parameter %q is empty", name)
		}
	}
	return nil
}

// names lists members for an error.
func names(members []member) string {
	list := make([]string, len(members))
	for i, m := range members {
		list[i] = m.name
	}
	return strings.Join(list, ", ")
}

// eachMember calls f for each member of the JSON object data. kind is the word for a
// member in errors.
func eachMember(data []byte, kind string, f func(name string, value json.RawMessage) error) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if _, err := dec.Token(); err != nil { // the opening brace
		return invalidJSON(dec, err)
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return invalidJSON(dec, err)
		}
		name, _ := t.(string)
		if seen[name] {
			return badRequest("%s %q is given twice", kind, name)
		}
		seen[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return invalidJSON(dec, err)
		}
		if err := f(name, value); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return invalidJSON(dec, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return badRequest("the body has data after its JSON object, at byte %d", dec.InputOffset())
	}
	return nil
}

// mustBe names the types of members.
var mustBe = map[reflect.Type]string{
	reflect.TypeFor[*string]():     "a string",
	reflect.TypeFor[*[]string]():   "an array of strings",
	reflect.TypeFor[*bool]():       "true or false",
	reflect.TypeFor[*int]():        "a whole number",
	reflect.TypeFor[**int]():       "a whole number",
	reflect.TypeFor[**string]():    "a string",
	reflect.TypeFor[**time.Time](): "a time such as 2027-01-31T12:00:00Z",
	reflect.TypeFor[*Expiry]():     "a time such as 2027-01-31T12:00:00Z, or null for never",
}

// decode decodes the member's value.
func (m member) decode(value json.RawMessage) error {
	if options, ok := m.to.(*GivenOptions); ok {
		return decodeOptions(m.name, value, options)
	}
	if limits, ok := m.to.(*GivenUsageLimits); ok {
		return decodeLimits(m.name, value, limits)
	}
	if e, ok := m.to.(*Expiry); ok {
		if e.Given = true; json.Unmarshal(value, &e.At) != nil {
			return badRequest("field %q must be %s", m.name, mustBe[reflect.TypeOf(m.to)])
		}
		return nil
	}
	if value[0] == 'n' || json.Unmarshal(value, m.to) != nil {
		return badRequest("field %q must be %s", m.name, mustBe[reflect.TypeOf(m.to)])
	}
	if text, ok := m.to.(*string); ok && m.need == needFilled && *text == "" {
		return badRequest("field %q is empty; leave it out for its default", m.name)
	}
	if m.then != nil {
		m.then()
	}
	return nil
}

// decodeOptions decodes an object of options, as strictly as the outer object.
func decodeOptions(name string, value json.RawMessage, to *GivenOptions) error {
	if value[0] != '{' {
		return badRequest("field %q must be an object with the options %s", name, strings.Join(compat.Names(), ", "))
	}
	*to = GivenOptions{}
	return eachMember(value, "option", func(name string, value json.RawMessage) error {
		var decoded any
		if err := json.Unmarshal(value, &decoded); err != nil {
			return badRequest("option %q: %v", name, err)
		}
		if err := new(compat.Options).SetJSON(name, decoded); err != nil {
			return badRequest("%v", err)
		}
		(*to)[name] = fmt.Sprint(decoded)
		return nil
	})
}

// decodeLimits decodes an object of limits, as strictly as the outer object.
func decodeLimits(name string, value json.RawMessage, to *GivenUsageLimits) error {
	if value[0] != '{' {
		return badRequest("field %q must be an object with the limits %s", name, strings.Join(limits.Names(), ", "))
	}
	*to = GivenUsageLimits{}
	return eachMember(value, "limit", func(name string, value json.RawMessage) error {
		if new(limits.UsageLimits).Field(name) == nil {
			return badRequest("unknown limit %q; the limits are %s", name, strings.Join(limits.Names(), ", "))
		}
		var n int
		if value[0] == 'n' || json.Unmarshal(value, &n) != nil {
			return badRequest("limit %q must be a whole number; 0 is no limit", name)
		}
		(*to)[name] = n
		return nil
	})
}

func invalidJSON(dec *json.Decoder, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badRequest("the body is not valid JSON: unexpected end")
	}
	return badRequest("the body is not valid JSON near byte %d: %v", dec.InputOffset(), err)
}
