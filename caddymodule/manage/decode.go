package manage

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

// maxBody bounds the body of a management request, in bytes.
const maxBody = 64 << 10

// decoded is a request and the account that it names.
type decoded[R any] struct {
	Request R      `json:",inline"`
	Account string `json:"account"`

	body   []byte
	fields fieldList
}

// decodeRequest reads a request from the query of GET and DELETE, or from the body of other methods.
func decodeRequest[R any](w http.ResponseWriter, r *http.Request, fields fieldList) (d decoded[R], err error) {
	if r.Method != http.MethodGet && r.Method != http.MethodDelete {
		if d.body, err = readBody(w, r); err == nil {
			d.fields, err = fields, fields.decode(d.body, &d)
		}
		return d, err
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return d, badRequest("the query of the URL is invalid: %v", err)
	}
	d.Account = query.Get("account")
	for field, value := range reflect.ValueOf(&d.Request).Elem().Fields() {
		name := field.Tag.Get("json")
		if n, err := strconv.ParseInt(query.Get(name), 10, 32); value.CanInt() && query.Has(name) {
			if err != nil {
				return d, badRequest("query parameter %q is %.40q; it must be a number", name, query.Get(name))
			}
			value.SetInt(n)
		} else if query.Has(name) {
			value.SetString(query.Get(name))
		}
	}
	return d, fields.checkQuery(query)
}

// edit changes the fields of a record as the request says.
func (d decoded[R]) edit(record *R) error {
	d.Request = *record
	err := d.fields.decode(d.body, &d)
	*record = d.Request
	return err
}

// checkQuery checks the names and values of a query.
func (all fieldList) checkQuery(query url.Values) error {
	for name, values := range query {
		f, ok := all.find(name)
		switch {
		case !ok:
			return badRequest("unknown query parameter %q; the parameters are %s", name, all.names())
		case len(values) > 1:
			return badRequest("query parameter %q is given twice", name)
		case f.Need != "" && values[0] == "":
			return badRequest("query parameter %q is empty", name)
		}
	}
	return nil
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

// decode decodes a JSON object into a struct with these fields. An unknown, duplicate, mistyped or missing member is
// an error that names it.
func (all fieldList) decode(data []byte, value any) error {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return badRequest("the body must be a JSON object with the fields %s", all.names())
	}
	filled := make(map[string]bool) // texts that are not empty
	decodeText := func(d *jsontext.Decoder, value *string) error {
		if d.PeekKind() != '"' {
			return errType
		}
		token, err := d.ReadToken()
		*value = token.String()
		name := d.StackPointer().LastToken()
		filled[name] = *value != ""
		if f, _ := all.find(name); err == nil && f.Need == needFilled && !filled[name] {
			return badRequest("field %q is empty; omit it to use its default", name)
		}
		return err
	}
	d := jsontext.NewDecoder(bytes.NewReader(data))
	err := json.UnmarshalDecode(d, value, json.RejectUnknownMembers(true), json.WithUnmarshalers(json.JoinUnmarshalers(
		json.UnmarshalFromFunc(decodeText), json.UnmarshalFromFunc(all.decodeTime), json.UnmarshalFromFunc(decodeNetworks),
		json.UnmarshalFromFunc(decodeOptions), json.UnmarshalFromFunc(refuseNull))))
	if err != nil {
		return all.explain(err)
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return badRequest("the body has data after its JSON object, at byte %d", d.InputOffset())
	}
	for _, f := range all {
		if f.Need == needRequired && !filled[f.Name] {
			return badRequest("field %q is required", f.Name)
		}
	}
	return nil
}

// errType is returned for a value of the wrong type. [fieldList.explain] replaces it with a text for users.
var errType = errors.New("wrong type")

func refuseNull(d *jsontext.Decoder, _ any) error {
	if d.PeekKind() == 'n' {
		return errType
	}
	return json.SkipFunc
}

// decodeTime sets a new time, as the present one may be shared with a record.
func (all fieldList) decodeTime(d *jsontext.Decoder, value **time.Time) error {
	if f, _ := all.find(d.StackPointer().LastToken()); d.PeekKind() == 'n' && f.Null != "" {
		*value = nil
		return d.SkipValue()
	}
	*value = new(time.Time)
	return json.UnmarshalDecode(d, *value)
}

func decodeNetworks(d *jsontext.Decoder, value *[]netip.Prefix) error {
	var texts []string
	err := json.UnmarshalDecode(d, &texts)
	if err == nil {
		*value, err = store.ParseNetworks(texts)
	}
	return err
}

// decodeOptions sets the options of the request, and keeps the others.
func decodeOptions(d *jsontext.Decoder, options *compat.Options) error {
	if d.PeekKind() != '{' {
		return errType
	}
	text, err := d.ReadValue()
	if err != nil {
		return err
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(members)) { // of several errors, always the same
		if err := options.SetJSON(name, members[name]); err != nil {
			return badRequest("%v", err)
		}
	}
	return nil
}

// explain returns the error of a body as a text for users.
func (all fieldList) explain(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return badRequest("the body is not valid JSON: unexpected end")
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		kind, f := all.locate(e.JSONPointer)
		if errors.Is(e, jsontext.ErrDuplicateName) && e.JSONPointer.LastToken() == f.Name { // not within its value
			return badRequest("%s %q is given twice", kind, f.Name)
		}
		return badRequest("the body is not valid JSON near byte %d: %v", e.ByteOffset, e.Err)
	}
	e, ok := errors.AsType[*json.SemanticError](err)
	if !ok || errors.Is(e.Err, store.ErrInvalid) {
		return errors.Unwrap(err)
	}
	kind, f := all.locate(e.JSONPointer)
	switch unknown := errors.Is(e, json.ErrUnknownName); {
	case unknown && kind == "limit":
		return badRequest("unknown limit %q; the limits are %s", f.Name, strings.Join(limits.Names(), ", "))
	case kind == "limit":
		return badRequest("limit %q must be a whole number; 0 is no limit", f.Name)
	case unknown:
		return badRequest("unknown field %q; the fields are %s", f.Name, all.names())
	default:
		return badRequest("field %q must be %s", f.Name, f.mustBe())
	}
}

// locate returns whether a pointer into the body names a "field", a "limit" or an "option", with its name and type.
func (all fieldList) locate(p jsontext.Pointer) (kind string, f Field) {
	names := slices.Collect(p.Tokens())
	if len(names) == 0 {
		return "field", f
	}
	f, _ = all.find(names[0])
	f.Name = names[0]
	switch nested := len(names) > 1; {
	case nested && f.Set:
		return "limit", Field{Name: names[1]}
	case nested && f.Type == reflect.TypeFor[compat.Options]():
		return "option", Field{Name: names[1]}
	}
	return "field", f
}

// mustBe describes the type of a field.
func (f Field) mustBe() string {
	switch f.Type {
	case reflect.TypeFor[*time.Time]():
		if f.Null != "" {
			return "a time such as 2027-01-31T12:00:00Z, or null for " + f.Null
		}
		return "a time such as 2027-01-31T12:00:00Z"
	case reflect.TypeFor[compat.Options]():
		return "an object with the options " + strings.Join(compat.Names(), ", ")
	case reflect.TypeFor[limits.UsageLimits]():
		return "an object with the limits " + strings.Join(limits.Names(), ", ")
	}
	switch f.Type.Kind() {
	case reflect.Slice:
		return "an array of strings"
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	}
	return "a string"
}
