package schema

import (
	"bytes"
	_ "embed"
	"maps"
	"slices"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// openAPI is the schema of OpenAPI 3.1 documents, from https://spec.openapis.org/oas/3.1
// (Apache License 2.0).
//
//go:embed openapi-3.1.json
var openAPI []byte

// CheckOpenAPI returns an error if a document is not valid OpenAPI 3.1.
func CheckOpenAPI(text []byte) error {
	v, err := NewValidator(openAPI)
	if err != nil {
		return err
	}
	return v.Check("", text)
}

// Validator validates with the schemas of one document.
type Validator struct {
	mu       sync.Mutex // held while a schema is compiled
	compiler *jsonschema.Compiler
}

// document is the address of the document of a validator.
const document = "file:///document.json"

// NewValidator returns the validator of a document.
func NewValidator(text []byte) (*Validator, error) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	return &Validator{compiler: c}, c.AddResource(document, value)
}

// Check validates a text with the schema at a JSON pointer, "" for the whole document. The
// error wraps *[jsonschema.ValidationError] if the text is invalid.
func (v *Validator) Check(pointer string, text []byte) error {
	s, err := v.compile(pointer)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(value)
}

func (v *Validator) compile(pointer string) (*jsonschema.Schema, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.compiler.Compile(document + "#" + pointer)
}

// Names returns the names of properties, sorted.
func Names(properties Schema) []string { return slices.Sorted(maps.Keys(properties)) }
