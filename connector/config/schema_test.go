package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/schema"
)

var update = flag.Bool("update", false, "write docs/connector.schema.json")

const schemaFile = "../../docs/connector.schema.json"

// docs/connector.schema.json is the JSON Schema of the configuration, written from Config
// and the limits of its values.
func TestSchema(t *testing.T) {
	g := schema.New("../..", "#/$defs/")
	g.Input = true
	object := g.Object(reflect.TypeFor[Config]())
	delete(object, "required") // the environment may have the rest
	constrain(object["properties"].(schema.Schema), g.Definitions)
	none := schema.Schema{"anyOf": []any{
		schema.Schema{"required": []string{"upstream"}},
		schema.Schema{"required": []string{"api_key_file"}},
		schema.Schema{"required": []string{"one_model_at_a_time"}},
	}}
	object["dependentSchemas"] = schema.Schema{"upstreams": schema.Schema{"not": none}}
	object["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	object["title"], object["$defs"] = "Configuration of a Postern connector", g.Definitions
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(object); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(schemaFile, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(schemaFile); err != nil || !bytes.Equal(have, want.Bytes()) {
		t.Errorf("docs/connector.schema.json differs from Config; run: go test ./connector/config -run TestSchema -update "+
			"(%v)", err)
	}
}

// constrain adds the limits of Validate and Parse that a schema can express.
func constrain(properties, definitions schema.Schema) {
	set := func(object schema.Schema, name, keyword string, value any) {
		object[name].(schema.Schema)[keyword] = value
	}
	set(properties, "transport", "enum", []string{TransportAuto, TransportQUIC, TransportWebSocket})
	set(properties, "server", "pattern", `^(\[[^\]]+\]|[^:/@\s]+):[0-9]{1,5}$`)
	set(properties, "max_requests", "minimum", 1)
	set(properties, "max_requests", "maximum", link.MaxRequestsLimit)
	for _, name := range []string{"max_memory", "kept_prompts"} {
		set(properties, name, "type", []string{"string", "integer"})
		set(properties, name, "pattern", `^[0-9]+ *([KMGkmg]i?)?[Bb]? *$`)
		set(properties, name, "minimum", 0)
	}
	set(properties, "upstreams", "maxProperties", link.MaxUpstreams)
	set(properties, "upstreams", "propertyNames", schema.Schema{"pattern": `^[A-Za-z0-9._-]{1,64}$`})
	set(properties, "routes", "maxItems", link.MaxRoutes)
	set(properties, "allow", "items",
		schema.Schema{"type": "string", "pattern": `^(` + strings.Join(methods, "|") + `) /v1/`})
	const base = `^https?://[^/?#@]+(/[^?#%]*)?$`
	set(properties, "upstream", "pattern", base)
	route := definitions["Route"].(schema.Schema)["properties"].(schema.Schema)
	set(route, "model", "minLength", 1)
	set(route, "model", "maxLength", link.MaxField)
	set(route, "upstream_model", "maxLength", link.MaxField)
	upstream := definitions["Upstream"].(schema.Schema)
	for _, name := range []string{"base_url", "BaseUrl"} {
		set(upstream["properties"].(schema.Schema), name, "pattern", base)
	}
	upstream["oneOf"] = []any{
		schema.Schema{"required": []string{"base_url"}},
		schema.Schema{"required": []string{"BaseUrl"}},
	}
}

// schemaBlind lists the rows of configErrors that a schema cannot express: names that occur
// twice, invalid UTF-8, values that depend on other values, and rare forms.
var schemaBlind = []string{
	"a field twice", "an escaped field twice", "no token", "no upstream", "a route to a misspelled upstream",
	"a route to nowhere",
	"too small a max_memory", "a * within a path", "upstream with a whole endpoint", "upstream with a bad port",
	"a model with a newline", "not UTF-8",
}

// Editors accept the configurations that the connector accepts.
func TestSchemaOfGoodConfigurations(t *testing.T) {
	v := schemaOf(t)
	for _, text := range []string{
		`{}`,
		`{"$schema":"https://gw.example.com/console/connector.schema.json","tunnel_token":"TOKEN",` +
			`"upstream":"http://localhost:11434"}`,
		`{"tunnel_token":"TOKEN","upstream":"https://box/openai/v1/","api_key_file":"k","server":"[::1]:7443",` +
			`"transport":"quic","max_requests":16}`,
		`{"tunnel_token":"TOKEN","upstream":"http://a","max_memory":268435456,"kept_prompts":0,"allow":["POST ` +
			`/v1/rerank","GET /v1/models/*"]}`,
		`{"tunnel_token":"TOKEN",
			"upstreams":{"a":{"base_url":"http://a:8000","api_key_file":"k"},"b":{"BaseUrl":"http://b/v1"}},
			"routes":[{"model":"qwen*","upstream":"a","upstream_model":"qwen3:8b"},{"model":"*","upstream":"b"}]}`,
	} {
		if err := v.Check("", []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("the connector refuses %s: %v", text, err)
		}
	}
}

// Editors refuse the configurations that the connector refuses, except those of schemaBlind.
func TestSchemaOfBadConfigurations(t *testing.T) {
	v := schemaOf(t)
	for _, tt := range configErrors {
		text := strings.ReplaceAll(tt.text, "TOKEN", testToken.Encode())
		if !json.Valid([]byte(text)) {
			continue
		}
		if err := v.Check("", []byte(text)); (err == nil) != slices.Contains(schemaBlind, tt.name) {
			t.Errorf("%s: editors accept it: %v\n%s", tt.name, err == nil, text)
		}
	}
}

func schemaOf(t *testing.T) *schema.Validator {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	v, err := schema.NewValidator(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
