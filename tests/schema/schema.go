// Package schema derives JSON Schemas (draft 2020-12) from Go types. Tests write the
// documents of the repository with it, and compare them. The programs do not import it.
//
// A property has the name and the type that encoding/json gives a field. Its description
// is the tag help of the field, or the comment.
package schema

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Schema is a JSON Schema, or a part of one.
type Schema = map[string]any

// Generator derives schemas that share definitions.
type Generator struct {
	Prefix      string                  // of references to definitions, such as "#/$defs/"
	Definitions Schema                  // the schemas of named structs, by name
	Types       map[reflect.Type]Schema // the schemas of types that encode themselves
	Input       bool                    // objects are decoded strictly: no further properties, no null

	comments comments
	named    map[string]reflect.Type
}

// New returns a generator. root is the folder of the module, which has the comments.
func New(root, prefix string) *Generator {
	return &Generator{
		Prefix: prefix, Definitions: Schema{}, Types: map[reflect.Type]Schema{
			reflect.TypeFor[time.Time]():    {"type": "string", "format": "date-time"},
			reflect.TypeFor[netip.Prefix](): {"type": "string"},
		},
		comments: comments{root: root, packages: map[string]map[string]string{}}, named: map[string]reflect.Type{},
	}
}

// Of returns the schema of a type. Named structs are references to Definitions.
func (g *Generator) Of(t reflect.Type) Schema {
	if s, ok := g.Types[t]; ok {
		return s
	}
	switch t.Kind() {
	case reflect.String:
		return Schema{"type": "string"}
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Uint32:
		return Schema{"type": "integer"}
	case reflect.Float64:
		return Schema{"type": "number"}
	case reflect.Pointer:
		return g.Of(t.Elem())
	case reflect.Slice, reflect.Array:
		return Schema{"type": "array", "items": g.Of(t.Elem())}
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": g.Of(t.Elem())}
	case reflect.Struct:
		return g.reference(t)
	}
	panic(fmt.Sprintf("no schema for %v", t))
}

// reference returns a reference to the definition of a struct.
func (g *Generator) reference(t reflect.Type) Schema {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if other, ok := g.named[name]; ok && other != t {
		panic(fmt.Sprintf("%v and %v have the same name", t, other))
	} else if !ok {
		g.named[name] = t
		g.Definitions[name] = g.Object(t)
	}
	return Schema{"$ref": g.Prefix + name}
}

// Object returns the schema of a struct itself. Fields that may be left out are not
// required.
func (g *Generator) Object(t reflect.Type) Schema {
	properties, required := Schema{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		optional := strings.Contains(options, "omit")
		property := g.property(t, f, f.Type.Kind() == reflect.Pointer && !optional && !g.Input)
		properties[name] = property
		if alias := f.Tag.Get("alias"); alias != "" {
			properties[alias] = Schema{"deprecated": true, "description": "Another name of " + name + "."}
			for key, value := range property {
				if key != "description" {
					properties[alias].(Schema)[key] = value
				}
			}
		} else if !optional {
			required = append(required, name)
		}
	}
	object := Schema{"type": "object", "properties": properties}
	if slices.Sort(required); len(required) > 0 {
		object["required"] = required
	}
	if g.Input {
		object["additionalProperties"] = false
	}
	return object
}

// property returns the schema of a field, with its comment.
func (g *Generator) property(t reflect.Type, f reflect.StructField, nullable bool) Schema {
	property := maps.Clone(g.Of(f.Type))
	if kind, ok := property["type"]; ok && nullable {
		property["type"] = []any{kind, "null"}
	} else if nullable {
		property = Schema{"anyOf": []any{property, Schema{"type": "null"}}}
	}
	missing := "missing"
	if nullable {
		missing = "null"
	}
	if text := f.Tag.Get("help"); text != "" {
		property["description"] = text + "."
	} else if text := g.comments.ofField(t, f, missing); text != "" {
		property["description"] = text
	}
	return property
}
