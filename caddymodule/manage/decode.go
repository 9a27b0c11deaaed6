package manage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/store"
)

// maxBody bounds the body of a management request, in bytes. All of them are
// a handful of short strings.
const maxBody = 64 << 10

// member is one member of a body's JSON object.
type member struct {
	name string
	to   any    // pointer
	need string // "", or one of the following
}

// What the tag need of a field asks of its member.
const (
	needRequired = "required" // it must be there, and not be empty
	needFilled   = "filled"   // it may be left out, but not be empty
)

// givenLimits are limits of an account, by name, as far as a body has them.
type givenLimits map[string]int

// limitMember is one of them.
type limitMember struct {
	in   givenLimits
	name string
}

// decodeBody reads the JSON object in a body into a struct, strictly: a member
// that is unknown, doubled, of another type or, where required, missing or empty
// is an error that names it. encoding/json alone would accept members in other
// letter case and doubled ones, and hide a typing mistake. A field with the tag
// path gets the record that the request's path names.
func decodeBody[B any](w http.ResponseWriter, r *http.Request) (B, error) {
	var body B
	data, err := readBody(w, r)
	if err != nil {
		return body, err
	}
	var members []member
	for field, value := range reflect.ValueOf(&body).Elem().Fields() {
		if name := field.Tag.Get("json"); name != "" {
			members = append(members, member{name, value.Addr().Interface(), field.Tag.Get("need")})
		}
		if field.Tag.Get("path") == "record" {
			value.SetString(recordOf(r))
		}
		if field.Type == reflect.TypeFor[givenLimits]() {
			limits := givenLimits{}
			value.Set(reflect.ValueOf(limits))
			for _, name := range store.LimitNames() {
				members = append(members, member{name, limitMember{limits, name}, ""})
			}
		}
	}
	return body, decodeMembers(data, members)
}

// readBody reads a body that must be JSON.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return nil, &requestError{http.StatusUnsupportedMediaType, "the body must be JSON; send `Content-Type: application/json`"}
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return nil, &requestError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", maxBody)}
		}
		return nil, badRequest("reading the body: %v", err)
	}
	const byteOrderMark = "\ufeff" // which some editors and shells put in front
	return bytes.TrimPrefix(data, []byte(byteOrderMark)), nil
}

// decodeMembers decodes a JSON object into its members.
func decodeMembers(data []byte, members []member) error {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
	}
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return badRequest("the body must be a JSON object with the fields %s", listed(names))
	}
	err := eachMember(data, "field", func(name string, value json.RawMessage) error {
		i := slices.Index(names, name)
		if i < 0 {
			return badRequest("unknown field %q; the fields are %s", name, listed(names))
		}
		return members[i].decode(value)
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

// eachMember calls f for each member of the one JSON object that data is. kind is
// what errors call a member.
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
		return badRequest("the body has something after its JSON object, at byte %d", dec.InputOffset())
	}
	return nil
}

// decode decodes the member's value.
func (m member) decode(value json.RawMessage) error {
	switch to := m.to.(type) {
	case *string:
		err := m.as("a string", value, to)
		if err == nil && m.need == needFilled && *to == "" {
			err = badRequest("field %q is empty; leave it out for its default", m.name)
		}
		return err
	case *[]string:
		return m.as("an array of strings", value, to)
	case *bool:
		return m.as("true or false", value, to)
	case *int:
		return m.as("a whole number", value, to)
	case limitMember:
		var n int
		err := m.as("a whole number", value, &n)
		to.in[to.name] = n
		return err
	case *store.Rights:
		var names []string
		err := m.as("an array of strings", value, &names)
		if err == nil {
			*to, err = store.ParseRights(names)
		}
		return err
	case **time.Time:
		var at time.Time
		err := m.as("a time such as 2027-01-31T12:00:00Z", value, &at)
		at = at.UTC().Truncate(time.Millisecond)
		*to = &at
		return err
	default:
		return decodeOptions(m.name, value, to.(*compat.Options))
	}
}

// as decodes a value; must names what it has to be.
func (m member) as(must string, value json.RawMessage, to any) error {
	if value[0] == 'n' || json.Unmarshal(value, to) != nil {
		return badRequest("field %q must be %s", m.name, must)
	}
	return nil
}

// decodeOptions decodes an object of options, as strictly as the object around it.
func decodeOptions(name string, value json.RawMessage, to *compat.Options) error {
	if value[0] != '{' {
		return badRequest("field %q must be an object with the options %s", name, strings.Join(compat.Names(), ", "))
	}
	return eachMember(value, "option", func(name string, value json.RawMessage) error {
		var decoded any
		if err := json.Unmarshal(value, &decoded); err != nil {
			return badRequest("option %q: %v", name, err)
		}
		if err := to.SetJSON(name, decoded); err != nil {
			return badRequest("%v", err)
		}
		return nil
	})
}

func invalidJSON(dec *json.Decoder, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badRequest("the body is not valid JSON: it ends too early")
	}
	return badRequest("the body is not valid JSON near byte %d: %v", dec.InputOffset(), err)
}
