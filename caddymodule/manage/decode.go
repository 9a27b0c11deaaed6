package manage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/compat"
)

// maxBody bounds the body of a management request, in bytes. All of them are
// a handful of short strings.
const maxBody = 64 << 10

// field is one member of a request's JSON object: a string, or a list of them,
// a number, true or false, or a deployment's options.
type field struct {
	name     string
	to       *string
	list     *[]string
	count    *int
	options  *compat.Options
	yes      *bool
	required bool // a string
	filled   bool // may be left out, but not be empty
}

// decodeBody reads a JSON object into fields, strictly: a member
// that is unknown, doubled, of another type or, where required, missing or
// empty is an error that names it. encoding/json alone would accept members
// in other letter case and doubled ones, and hide a typing mistake.
func decodeBody(w http.ResponseWriter, r *http.Request, fields ...field) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return &requestError{http.StatusUnsupportedMediaType, "the body must be JSON; send `Content-Type: application/json`"}
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return &requestError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", maxBody)}
		}
		return badRequest("reading the body: %v", err)
	}
	const byteOrderMark = "\ufeff" // which some editors and shells put in front
	if err := decodeObject(bytes.TrimPrefix(data, []byte(byteOrderMark)), fields); err != nil {
		return err
	}
	for _, f := range fields {
		if f.required && *f.to == "" {
			return badRequest("field %q is required", f.name)
		}
	}
	return nil
}

// decodeObject decodes exactly one JSON object.
func decodeObject(data []byte, fields []field) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return badRequest("the body must be a JSON object with the fields %s", names(fields))
	}
	seen := make(map[string]bool, len(fields))
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return invalidJSON(dec, err)
		}
		name, _ := t.(string)
		f := find(fields, name)
		if f == nil {
			return badRequest("unknown field %q; the fields are %s", name, names(fields))
		}
		if seen[name] {
			return badRequest("field %q is given twice", name)
		}
		seen[name] = true
		if err := decodeField(dec, f); err != nil {
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

func decodeField(dec *json.Decoder, f *field) error {
	switch {
	case f.list != nil:
		return decodeAs(dec, f.name, "an array of strings", f.list)
	case f.count != nil:
		return decodeAs(dec, f.name, "a whole number", f.count)
	case f.options != nil:
		return decodeOptions(dec, f)
	case f.yes != nil:
		return decodeAs(dec, f.name, "true or false", f.yes)
	default:
		return decodeString(dec, f)
	}
}

// decodeOptions decodes an object of options, as strictly as what it is in.
func decodeOptions(dec *json.Decoder, f *field) error {
	t, err := dec.Token()
	switch {
	case err != nil:
		return invalidJSON(dec, err)
	case t != json.Delim('{'):
		return badRequest("field %q must be an object with the options %s", f.name, strings.Join(compat.Names(), ", "))
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return invalidJSON(dec, err)
		}
		name, _ := t.(string)
		if seen[name] {
			return badRequest("option %q is given twice", name)
		}
		seen[name] = true
		var value any
		if err := dec.Decode(&value); err != nil {
			return invalidJSON(dec, err)
		}
		if err := f.options.SetJSON(name, value); err != nil {
			return badRequest("%v", err)
		}
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return invalidJSON(dec, err)
	}
	return nil
}

// decodeAs decodes a value that is no string; what says what it must be.
func decodeAs(dec *json.Decoder, name, what string, to any) error {
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return invalidJSON(dec, err)
	}
	if raw[0] == 'n' || json.Unmarshal(raw, to) != nil {
		return badRequest("field %q must be %s", name, what)
	}
	return nil
}

func decodeString(dec *json.Decoder, f *field) error {
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return invalidJSON(dec, err)
	}
	if raw[0] != '"' {
		return badRequest("field %q must be a string, not %s", f.name, kind(raw[0]))
	}
	if err := json.Unmarshal(raw, f.to); err != nil {
		return invalidJSON(dec, err)
	}
	if f.filled && *f.to == "" {
		return badRequest("field %q is empty; leave it out for its default", f.name)
	}
	return nil
}

func invalidJSON(dec *json.Decoder, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badRequest("the body is not valid JSON: it ends too early")
	}
	return badRequest("the body is not valid JSON near byte %d: %v", dec.InputOffset(), err)
}

// kind names a JSON value by its first byte.
func kind(first byte) string {
	switch first {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

func find(fields []field, name string) *field {
	for i := range fields {
		if fields[i].name == name {
			return &fields[i]
		}
	}
	return nil
}

// names lists the names of fields.
func names(fields []field) string {
	if len(fields) == 0 {
		return "(none)"
	}
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = f.name
	}
	return strings.Join(list, ", ")
}

// params reads the query, which may have each of these parameters once.
func params(r *http.Request, allowed ...string) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query of the URL cannot be read: %v", err)
	}
	for name, values := range query {
		if !slices.Contains(allowed, name) {
			if len(allowed) == 0 {
				return nil, badRequest("unknown query parameter %q; there are none here", name)
			}
			return nil, badRequest("unknown query parameter %q; there is only: %s", name, strings.Join(allowed, ", "))
		}
		if len(values) > 1 {
			return nil, badRequest("query parameter %q is given twice", name)
		}
	}
	return query, nil
}

// accountParam returns the account that a query is about, where "account" is
// the only parameter. It is one that the caller may see.
func (s *Service) accountParam(r *http.Request) (string, error) {
	query, err := params(r, "account")
	if err != nil {
		return "", err
	}
	return s.account(r.Context(), query.Get("account"))
}
